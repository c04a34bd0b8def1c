"""Tests of zkms.aio on a real ZooKeeper, each in a root of its own."""
