"""Tests of zkms.testing: containers, ensembles, the proxy, the fixtures."""
