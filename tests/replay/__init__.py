"""Reading and writing by checkpoint."""
