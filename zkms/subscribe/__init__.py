"""Registers subscriptions: live ones with every session anew, durable ones and groups once.

May import `context` and the rooms below it. Read `options` first, then `live_registration`.
"""
