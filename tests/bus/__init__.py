"""Tests of the bus on a real ZooKeeper, each in a root of its own."""
