"""Trails: what happened to every message, as each process saw it.

The rooms report through `hooks`. A process appends events (`event`) through its `recorder` to files in a directory
(`store`, and a `ledger` that knows what a kill has lost); `export` brings finished files of one or many processes into
Parquet; `generate` writes trails with known faults.
"""

from zkms.config import Trail

__all__ = ["Trail"]
