"""Tests of `zkms bench`."""
