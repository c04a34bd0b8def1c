"""Durable subscriptions, groups, delayed messages and dead letters, written into one file and restored from it.

May import `admin` and the rooms below it. Read `backup` first, then `restore`.
"""
