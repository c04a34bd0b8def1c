"""How far the hosts' clocks are apart, from the trail alone.

A message's way from host A to host B takes at least as long as the fastest one did. Measured by two clocks that is
delay + (B's clock - A's clock); the way back is delay - (B's clock - A's clock). Half of the difference is how far the
clocks are apart, and half of the sum bounds the error; where clocks were set in between, it is below zero by what they
moved. Where messages go one way only, a negative delay or one past
all reason still tells; anything else is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

UNREASONABLE = 300.0
"""Seconds: the fastest of all messages is not slower than this, unless a clock is off."""
TYPICAL_DELAY = 0.001
WORTH_IT = 0.0005
"""Seconds: a clock nearer than this is left alone."""


LEAST_MARGIN = 0.010


@dataclass(frozen=True)
class Clock:
    """One host's: `offset` seconds ahead of the reference, known to within `error`; None: nothing tells."""

    host: str
    offset: float
    error: float | None


def estimate(hosts: list[str], apart: Mapping[tuple[str, str], float]) -> dict[str, Clock]:
    """A clock for every host, against that host which most others exchange messages with."""
    edges = {**{edge: known for edge in apart if (known := _between(edge, apart)) is not None}}
    degree = {host: sum(host in edge for edge in edges) for host in hosts}
    clocks: dict[str, Clock] = {}
    for start in sorted(hosts, key=lambda host: (-degree[host], host)):
        if start in clocks:
            continue
        clocks[start] = Clock(start, 0.0, 0.0 if not clocks else None)
        while True:  # always over the surest way out of those that are known
            ways = [
                (error, a, b, offset) for (a, b), (offset, error) in edges.items() if a in clocks and b not in clocks
            ]
            if not ways:
                break
            error, a, b, offset = min(ways)
            behind = clocks[a]
            total = None if behind.error is None else behind.error + error
            clocks[b] = Clock(b, behind.offset + offset, total)
    return _from_the_middle(clocks)


def _between(edge: tuple[str, str], apart: Mapping[tuple[str, str], float]) -> tuple[float, float] | None:
    """How far b's clock is ahead of a's, and the error of that."""
    a, b = edge
    if a == b:
        return None
    there, back = apart[edge], apart.get((b, a))
    if back is not None:
        return (there - back) / 2, abs(there + back) / 2  # below 0: a clock has moved meanwhile, by that much
    if there < 0 or there > UNREASONABLE:
        return there - TYPICAL_DELAY, abs(TYPICAL_DELAY)
    return 0.0, there


def _from_the_middle(clocks: dict[str, Clock]) -> dict[str, Clock]:
    """Take the median as the reference: one host that is an hour off is then the one that is called so."""
    offsets = sorted(clock.offset for clock in clocks.values())
    middle = offsets[(len(offsets) - 1) // 2] if offsets else 0.0
    return {host: Clock(host, clock.offset - middle, clock.error) for host, clock in clocks.items()}


def spread(clocks: Mapping[str, Clock]) -> float:
    """Seconds that any two clocks are apart at most, errors included."""
    offsets = [clock.offset for clock in clocks.values()]
    errors = [clock.error or 0.0 for clock in clocks.values()]
    return max(offsets) - min(offsets) + 2 * max(errors) + LEAST_MARGIN if offsets else LEAST_MARGIN


def correct(trail: DataFrame, clocks: Mapping[str, Clock], producer_host: Mapping[str, str]) -> DataFrame:
    """The trail with `t`, and the producer's `at`, by the reference clock."""
    ahead = {host: clock.offset for host, clock in clocks.items() if abs(clock.offset) > WORTH_IT}
    if not ahead:
        return trail
    spark = trail.sparkSession
    hosts = spark.createDataFrame(list(ahead.items()), "host string, host_ahead double")
    makers = [(name, ahead[host]) for name, host in producer_host.items() if host in ahead]
    producers = spark.createDataFrame(makers, "producer string, producer_ahead double")
    both = trail.join(F.broadcast(hosts), "host", "left").join(F.broadcast(producers), "producer", "left")
    ours, theirs = (F.coalesce(name, F.lit(0.0)) for name in ("host_ahead", "producer_ahead"))
    changed = {"t": F.col("t") - ours, "at": F.col("at") - theirs}
    return both.withColumns(changed).select(*trail.columns)
