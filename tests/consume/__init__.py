"""Durable subscriptions and groups."""
