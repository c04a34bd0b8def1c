"""The longest pause: how long a client went without progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from verification.faults.checker import Reader
from verification.faults.journal import Record


def longest(moments: Iterable[float], since: float, until: float) -> float:
    """The longest time between two moments, or between one and an end of the window."""
    inside = sorted(moment for moment in moments if since < moment < until)
    return max(later - earlier for earlier, later in pairwise([since, *inside, until]))


def of_traffic(
    published: Iterable[Record], readers: Iterable[Reader], since: float, until: float, *, but: Iterable[str] = ()
) -> float:
    """Of any publisher between two messages stored, or of any subscription between two delivered; `but` the victims."""
    victims = set(but)
    moments: dict[str, list[float]] = defaultdict(list)
    for kind, who, _, at, *_ in published:
        if kind == "stored" and who not in victims:
            moments[who].append(at)
    for reader in readers:
        if reader.name not in victims:
            moments[f"to {reader.subscription}"] += [at for _, at, _ in reader.got()]
    return max((longest(each, since, until) for each in moments.values()), default=until - since)


def of_writes(records: Iterable[Record], since: float, until: float) -> float:
    """Of any of the bare clients between two writes."""
    moments: dict[str, list[float]] = defaultdict(list)
    for _, who, at in records:
        moments[who].append(at)
    return max((longest(each, since, until) for each in moments.values()), default=until - since)
