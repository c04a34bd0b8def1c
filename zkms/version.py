"""The version of zkms, in one place."""

__version__ = "0.1.0"
