"""The mutation check itself."""
