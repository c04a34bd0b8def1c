"""The embedded ZooKeeper."""
