"""Trails: what happened to every message, as each process saw it.

The rooms report through `hooks`. A process appends events (`event`) through its `recorder` to files in a directory
(`store`; `line_count` knows what a kill has lost); `export` brings finished files into Parquet; `generate` makes
trails with known faults. May import `message`, `tree` and what is below them. Read `hooks` first.
"""

from zkms.config import Trail

__all__ = ["Trail"]
