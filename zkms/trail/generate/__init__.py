"""Writes realistic trails with known violations, to test the analysis with. Read `generate` first.

May import `trail` and `trail.export`; needs the extra `zkms[trail]`.
"""
