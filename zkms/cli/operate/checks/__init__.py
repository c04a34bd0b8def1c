"""What `zkms doctor` looks at: `server` is ZooKeeper itself, `security` what is open, `tree` what zkms has in it.

May import every room below the command line. Read `server` first.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "warning", "problem"]
CLEANERS_SEE = "with separate roles, a cleaner's credentials are for looking at everything"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was checked: how it is, and what to do about it."""

    check: str
    level: Level
    finding: str
    advice: str = ""


def some(names: list[str], most: int = 3) -> str:
    """A few of many names, for a sentence."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
