"""Looking around: groups, dead letters, changes; each in a root of its own."""
