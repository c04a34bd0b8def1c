"""The long runs, cut short, and their verdict."""
