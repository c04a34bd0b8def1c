"""How much was published and delivered, how fast, how late, and what went wrong on the way. Read `traffic` first."""
