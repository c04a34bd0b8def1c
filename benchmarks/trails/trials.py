"""The trials: speed against the straightforward version, planted violations, scale."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.comparison import findable
from benchmarks.trails import results
from benchmarks.trails.contestant import Outcome
from zkms.errors import ZkmsError
from zkms.trail.generate.generate import PLANTED, Generator
from zkms.trail.generate.planting import parse_faults

Say = Callable[[str], None]
MEMORY_MB = 4096
"""For each contestant, all its processes together."""


class ContestantFailed(ZkmsError):
    """A contestant ended without a result; the message has its last words."""


def trail_of(events: int, faults: str, folder: Path, seed: int, say: Say) -> Path:
    """A generated trail of this size, made if it is not there yet."""
    place = folder / f"{events}-{faults or 'none'}-{seed}"
    if not (place / PLANTED).exists():
        say(f"generating {events:,} events")
        Generator(events, place, faults=parse_faults(faults), seed=seed, parquet=True).run()
    return place


def run(name: str, trail: Path, say: Say, memory_mb: int = MEMORY_MB) -> Outcome:
    """One contestant in a process of its own."""
    say(f"{name} on {trail.name}")
    command = [sys.executable, "-m", "benchmarks.trails.contestant", name, str(trail), str(memory_mb)]
    with findable():
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - ourselves
    if done.returncode:
        raise ContestantFailed(f"{name} ended with exit code {done.returncode}: its reason stands above")
    outcome = msgspec.json.decode(done.stdout.splitlines()[-1], type=Outcome)
    say(f"  {outcome.seconds:,.1f} s, {outcome.cpu:,.1f} s of CPU, at most {outcome.memory_mb:,.0f} MB")
    return outcome


def planted_in(trail: Path) -> tuple[int, list[list[Any]]]:
    """How many events a generated trail has, and which violations."""
    told = msgspec.json.decode((trail / PLANTED).read_bytes())
    names = ("violation", "topic", "sub", "producer", "seq", "n")
    return told["events"], [[each[name] for name in names] for each in told["violations"]]


class Part:
    """One part: knows when it began."""

    def __init__(self) -> None:
        self._load = os.getloadavg()[0]
        self._when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")

    def conditions(self) -> results.Conditions:
        """As they were."""
        return results.conditions(self._load, self._when)


def speed(events: int, folder: Path, say: Say) -> results.Speed:
    """The straightforward version, the jobs and DuckDB, one after the other on the same files."""
    part = Part()
    trail = trail_of(events, "all=3", folder, 2, say)
    outcomes = [run(name, trail, say) for name in ("jobs", "duckdb", "sql")]
    return results.Speed(part.conditions(), planted_in(trail)[0], outcomes, agree(outcomes))


def agree(outcomes: list[Outcome]) -> bool:
    """Whether all counted and found the same.

    What comes a second time is out of order besides for the straightforward version, and for the jobs is not.
    """
    first, *others = [outcome.answers for outcome in outcomes]
    same = all(first[name] == other[name] for other in others for name in ("latency", "lost", "duplicated"))
    twice = set(first["duplicated"])
    orders = [set(answers["out_of_order"]) - twice for answers in (first, *others)]
    return same and all(order == orders[0] for order in orders)


def planted(events: int, each: int, folder: Path, say: Say) -> results.Planted:
    """All kinds of violations, so many of each, through all jobs."""
    part = Part()
    trail = trail_of(events, f"all={each}", folder, 1, say)
    total, there = planted_in(trail)
    outcome = run("everything", trail, say)
    expected = {tuple(violation) for violation in there}
    found = {tuple(violation) for violation in outcome.answers["violations"]}
    return results.Planted(
        part.conditions(),
        total,
        dict(Counter(str(violation[0]) for violation in expected)),
        dict(Counter(str(violation[0]) for violation in found & expected)),
        len(expected - found),
        len(found - expected),
    )


def scale(sizes: tuple[int, ...], folder: Path, say: Say) -> results.Scale:
    """All jobs on each size."""
    part = Part()
    outcomes, counts = [], []
    for events in sizes:
        trail = trail_of(events, "all=3", folder, 3, say)
        outcome = run("everything", trail, say)
        counts.append(planted_in(trail)[0])
        outcome.answers = {name: outcome.answers[name] for name in ("events", "messages", "verdicts")}
        outcomes.append(outcome)
    return results.Scale(part.conditions(), counts, outcomes)
