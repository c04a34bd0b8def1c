"""What is measured: zkms itself, the original's algorithm, and the least that kazoo can do."""
