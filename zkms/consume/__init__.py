"""Durable subscriptions and groups: who owns a partition, which messages are in flight, what is committed.

`subscriptions` is all that a process subscribes to, live subscriptions included.

May import `publish`, `subscribe`, `deliver` and the rooms below them. Read `consumer` first, then `dispatcher`.
"""
