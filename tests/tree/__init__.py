"""Paths, and what is stored at them."""
