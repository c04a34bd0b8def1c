"""Tests of zkms.cache, also on zkms.aio."""
