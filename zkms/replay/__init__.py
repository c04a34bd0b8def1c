"""Reads and writes by checkpoint, for Spark: a cursor over a durable subscription, and publishing in two steps.

May import `admin`, `consume` and the rooms below them. Read `cursor` first, then `stage`.
"""
