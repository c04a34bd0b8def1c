"""A short selection of bad input, and all that was ever found."""
