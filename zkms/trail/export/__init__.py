"""Brings the finished files of trails into Parquet. Read `export` first.

May import `trail` and what all rooms share; needs the extra `zkms[trail]`.
"""
