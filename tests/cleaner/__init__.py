"""Tests of zkms_cleaner: election, duties, daemon."""
