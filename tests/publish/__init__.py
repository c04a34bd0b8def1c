"""Publishing: who gets a message, in which order, once; packed, large, limited and delayed."""
