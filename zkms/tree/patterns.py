"""Topics that stand for others: levels divided by dots, with wildcards.

`users.*` stands for `users.` and one more level, `users.>` for `users.` and one level or more.
"""

from __future__ import annotations

from collections.abc import Sequence


def is_pattern(topic: str) -> bool:
    """Whether a topic stands for others."""
    levels = topic.split(".")
    return "*" in levels or levels[-1] == ">"


def matches(pattern: str, topic: str) -> bool:
    """Whether a pattern stands for a topic."""
    wanted, given = pattern.split("."), topic.split(".")
    if wanted[-1] == ">":
        return len(given) >= len(wanted) and _alike(wanted[:-1], given)
    return len(given) == len(wanted) and _alike(wanted, given)


def _alike(wanted: Sequence[str], given: Sequence[str]) -> bool:
    return all(level in ("*", other) for level, other in zip(wanted, given, strict=False))
