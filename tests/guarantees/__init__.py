"""What docs/guarantees.md promises, while requests are lost and processes die."""
