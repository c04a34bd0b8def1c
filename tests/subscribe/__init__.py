"""Registrations: how they come back."""
