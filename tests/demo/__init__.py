"""`zkms demo`."""
