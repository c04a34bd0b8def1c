"""Two lists of requirements, row by row."""
