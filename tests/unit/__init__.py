"""Tests of single modules, without ZooKeeper."""
