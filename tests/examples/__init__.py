"""Every example runs."""
