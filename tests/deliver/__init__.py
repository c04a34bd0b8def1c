"""From a queue to a handler: reading, watching, buffering, and what cannot be decoded."""
