"""Inspection and administration: topics, queues, groups and their lag, dead letters, delayed messages, quotas.

May import `consume` and the rooms below it. The CLI and the bus call it. Read `discovery` first, then `groups`.
"""
