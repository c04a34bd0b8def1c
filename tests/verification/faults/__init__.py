"""A few cells, and the checker by itself."""
