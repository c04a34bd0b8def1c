"""Durable subscriptions and groups: who owns a partition, which messages are in flight, what is committed.

May import `publish`, `subscribe`, `deliver` and the rooms below them. Read `consumer` first, then `dispatcher`.
"""
