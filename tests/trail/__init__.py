"""Tests of zkms.trail: recording, export, generation."""
