"""Flat or growing: judged by a robust slope over the second half of a run, with a bound that is stated.

The slope is Theil and Sen's, the median of the slopes between all pairs of points: a spike, a sawtooth or a step that
is undone does not move it, a steady leak does. What it makes of the second half is the growth; it has to stay below the
bound, which is the larger of a share of the median and an absolute allowance.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import median

import msgspec

from verification.soak.meters import Sample

MOST_PAIRS = 20_000
FEWEST = 6
"""Points in a half; with less nothing can be said."""


class Bound(msgspec.Struct, frozen=True):
    """How much more of something there may be at the end of the second half than at its beginning."""

    share: float
    at_least: float


BOUNDS: dict[str, Bound] = {
    "rss_mb": Bound(0.05, 4.0),
    "threads": Bound(0.0, 1.5),
    "files": Bound(0.0, 2.5),
    "znodes": Bound(0.10, 120.0),
    "watches": Bound(0.05, 20.0),
    "ephemerals": Bound(0.10, 10.0),
    "connections": Bound(0.0, 4.0),
    "outstanding": Bound(0.0, 50.0),
    "data_bytes": Bound(0.10, 4.0 * 1024 * 1024),
    "queued": Bound(0.10, 1_000.0),
}
HEAP_ROOM_MB = 320.0
"""A JVM takes its heap, and some more: the server's memory is judged by its size, not by its slope."""


class Judgement(msgspec.Struct, frozen=True):
    """What became of one series."""

    series: str
    median: float
    growth: float
    """Over the second half."""
    bound: float
    growing: bool


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Theil and Sen's, per second; of many points a fixed random choice of pairs."""
    pairs = list(combinations(points, 2))
    if len(pairs) > MOST_PAIRS:
        pairs = random.Random(1).sample(pairs, MOST_PAIRS)
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0]]
    return median(slopes) if slopes else 0.0


def judge(series: str, points: Sequence[tuple[float, float]], bound: Bound) -> Judgement | None:
    """Flat or growing over the second half; None if there are too few points to say."""
    if not points:
        return None
    middle = (points[0][0] + points[-1][0]) / 2
    half = [point for point in points if point[0] >= middle]
    if len(half) < FEWEST:
        return None
    usual = median(value for _, value in half)
    allowed = max(bound.share * abs(usual), bound.at_least)
    growth = slope(half) * (half[-1][0] - half[0][0])
    return Judgement(series, round(usual, 2), round(growth, 3), round(allowed, 2), growth > allowed)


def all_series(samples: Sequence[Sample]) -> Iterator[tuple[str, str, list[tuple[float, float]]]]:
    """Name, kind and points of everything that is judged."""
    names = {name for sample in samples for name in sample.processes}
    for name in sorted(names):
        for kind in ("rss_mb", "threads", "files"):
            points = [(s.at, float(getattr(s.processes[name], kind))) for s in samples if name in s.processes]
            yield f"{name}: {kind}", kind, points
    # What waits is judged by itself: here it would hide everything else.
    others = [(s.at, float(s.server["znodes"] - s.queued)) for s in samples if "znodes" in s.server]
    yield "server: znodes besides entries", "znodes", others
    for kind in ("watches", "ephemerals", "connections", "outstanding", "data_bytes"):
        yield f"server: {kind}", kind, [(s.at, float(s.server[kind])) for s in samples if kind in s.server]
    yield "queues: entries", "queued", [(s.at, float(s.queued)) for s in samples]


def judge_all(samples: Sequence[Sample], bounds: Mapping[str, Bound] = BOUNDS) -> list[Judgement]:
    """Every series of a run."""
    found = []
    for name, kind, points in all_series(samples):
        if name == "server: rss_mb":
            continue
        judgement = judge(name, points, bounds[kind])
        if judgement is not None:
            found.append(judgement)
    return found
