"""What is released: distributions, what they depend on, and upgrades."""
