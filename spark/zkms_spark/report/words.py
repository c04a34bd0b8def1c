"""Formats figures for people."""

from __future__ import annotations

import math
from datetime import UTC, datetime

DASH = "\N{EN DASH}"
"""Where there is no figure."""


def clock(seconds: float | None, *, day: bool = False) -> str:
    """A moment in UTC; a dash for none."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return "?"
    return moment.strftime("%Y-%m-%d %H:%M:%S" if day else "%H:%M:%S")


def span(seconds: float | None) -> str:
    """A length of time, in the unit that suits it."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    size = abs(seconds)
    if size < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if size < 1:
        return f"{seconds * 1e3:.3g} ms"
    if size < 120:
        return f"{seconds:.3g} s"
    if size < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if size < 172800 else f"{seconds / 86400:.1f} days"


def number(value: float | None) -> str:
    """With thousands set apart; a dash for none."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Bytes, in the unit that suits them."""
    if value is None:
        return DASH
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def count(value: int, what: str, many: str | None = None) -> str:
    """ "1 message", "1,000 messages"."""
    return f"{value:,} {what if value == 1 else many or what + 's'}"


def listing(names: list[str], most: int = 3) -> str:
    """ "a, b and c", and how many more."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""
