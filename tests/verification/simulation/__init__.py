"""Its ZooKeeper is like the real one, its schedules repeat, and they find what is broken."""
