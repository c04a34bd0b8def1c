"""Tests of zkms.integrations, between processes, with the frameworks themselves."""
