"""Trails: what happened to every message, as each process saw it.

A process appends events (`event`) to files in a directory (`recorder`, `store`); `export` brings finished files of one
or many processes into Parquet; `generate` writes trails with known faults. See docs/trails.md.
"""
