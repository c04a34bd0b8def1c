"""A window: one minute of the trail, its cells and the figures made of them, in one JSON file.

A file appears as a whole, by a rename, and says which batch it was last changed by. A batch that is done again after a
kill finds its own number there and changes nothing. So every batch is in every window once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zkms_spark.live.cells import STORED
from zkms_spark.schema import home_of
from zkms_spark.traffic.traffic import WIDTH

CellKey = tuple[str, str | None, str | None, int | None]
"""event, topic, sub, bucket of latency"""
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_COUNTED = ("delivered", "redelivered", "acked", "nacked", "expired", "dead", "purged")
_MESSAGES, _LINES, _BYTES, _COPIES, _SLOWEST = range(5)


@dataclass
class Window:
    """A step of time; `cells` has [messages, lines, bytes, copies, slowest] for each key."""

    step: float
    seconds: float
    batch: int = -1
    """The last batch that is in it."""
    cells: dict[CellKey, list[Any]] = field(default_factory=dict)
    waiting: dict[tuple[str, str], int] | None = None
    """By topic and subscription, once the window is closed: what waited at its end."""

    def add(self, batch: int, cells: Iterable[tuple[CellKey, Sequence[Any]]]) -> bool:
        """Add a batch's cells; False if they are in it already."""
        if batch <= self.batch:
            return False
        for key, values in cells:
            mine = self.cells.setdefault(key, [0, 0, 0, 0, None])
            for place in range(_SLOWEST):
                mine[place] += values[place] or 0
            if values[_SLOWEST] is not None:
                mine[_SLOWEST] = max(mine[_SLOWEST] or 0.0, values[_SLOWEST])
        self.batch = batch
        return True

    def topics(self) -> list[dict[str, Any]]:
        """By topic: published, copies, bytes, delivered, latencies."""
        parts: dict[str, list[tuple[CellKey, list[Any]]]] = {}
        for key, values in self.cells.items():
            if key[1] is not None and key[0] in ("published", "due", "delivered"):
                parts.setdefault(key[1], []).append((key, values))
        rows = []
        for topic, cells in sorted(parts.items()):
            row: dict[str, Any] = {"topic": topic, "published": 0, "copies": 0, "bytes": 0, "delivered": 0}
            for (event, *_), values in cells:
                row["copies"] += values[_COPIES]
                row["bytes"] += values[_BYTES] if event == "published" else 0
                if event != "due":
                    row[event] += values[_MESSAGES]
            rows.append(row | latencies(cells))
        return rows

    def subscriptions(self) -> list[dict[str, Any]]:
        """By topic and subscription: what came in, what became of it, latencies, gaps, and what waited at the end.

        A subscription to a pattern has one queue, and one row, under the pattern.
        """
        parts: dict[tuple[str, str], list[tuple[CellKey, list[Any]]]] = {}
        for key, values in self.cells.items():
            if key[1] is not None and key[2] is not None:
                parts.setdefault((home_of(key[1], key[2]), key[2]), []).append((key, values))
        rows = []
        for (topic, sub), cells in sorted(parts.items()):
            row = {"topic": topic, "sub": sub, STORED: 0, **dict.fromkeys(_COUNTED, 0), "gaps": 0}
            for (event, *_), values in cells:
                if event == "gap":
                    row["gaps"] += values[_LINES]
                elif event in row:
                    row[event] += values[_MESSAGES]
            row |= latencies(cells)
            row["waiting"] = None if self.waiting is None else self.waiting.get((topic, sub), 0)
            rows.append(row)
        return rows

    def lost_lines(self) -> int:
        """Lines of the trail that it says are missing."""
        return sum(values[_MESSAGES] for key, values in self.cells.items() if key[0] == "lost")


def changes(cells: Iterable[tuple[CellKey, Sequence[Any]]]) -> dict[tuple[str, str], int]:
    """topic, sub -> by how much its queue grew; of a subscription to a pattern, the pattern."""
    grown: dict[tuple[str, str], int] = {}
    for (event, topic, sub, _), values in cells:
        sign = 1 if event == STORED else -1 if event in ("delivered", "expired", "purged") else 0
        if sign and topic is not None and sub is not None:
            queue = home_of(topic, sub), sub
            grown[queue] = grown.get(queue, 0) + sign * (values[_MESSAGES] or 0)
    return grown


def latencies(cells: Iterable[tuple[CellKey, Sequence[Any]]]) -> dict[str, float | None]:
    """p50, p90, p99 and the slowest in seconds, from the buckets; to within 2 %."""
    buckets: dict[int, int] = {}
    slowest: float | None = None
    for (_, _, _, bucket), values in cells:
        if bucket is not None:
            buckets[bucket] = buckets.get(bucket, 0) + values[_MESSAGES]
            slowest = max(slowest or 0.0, values[_SLOWEST] or 0.0)
    total, so_far = sum(buckets.values()), 0
    found: dict[str, float | None] = dict.fromkeys(QUANTILES)
    for bucket in sorted(buckets):
        so_far += buckets[bucket]
        for name, q in QUANTILES.items():
            if found[name] is None and so_far >= math.ceil(total * q):
                found[name] = math.exp((bucket + 0.5) * WIDTH)
    return {**found, "slowest": slowest}


class Windows:
    """The files of all windows, below one directory."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self._directory = directory
        self._seconds = seconds
        directory.mkdir(parents=True, exist_ok=True)

    def load(self, step: float) -> Window:
        """A window as it is; an empty one if there is none yet."""
        path = self._path(step)
        if not path.exists():
            return Window(step, self._seconds)
        raw = json.loads(path.read_text(encoding="utf-8"))
        cells = {tuple(row[:4]): row[4:] for row in raw["cells"]}
        waiting = None
        if raw["closed"]:
            waiting = {(row["topic"], row["sub"]): row["waiting"] for row in raw["subscriptions"]}
        return Window(raw["step"], raw["seconds"], raw["batch"], cells, waiting)

    def save(self, window: Window) -> None:
        """Whole or not at all."""
        document = {
            "window": iso(window.step),
            "step": window.step,
            "seconds": window.seconds,
            "closed": window.waiting is not None,
            "lost_lines": window.lost_lines(),
            "topics": window.topics(),
            "subscriptions": window.subscriptions(),
            "batch": window.batch,
            "cells": [[*key, *values] for key, values in window.cells.items()],
        }
        write_whole(self._path(window.step), document)

    def steps(self) -> list[float]:
        """Of all windows, ascending."""
        return sorted(float(path.stem.rpartition("_")[2]) for path in self._directory.glob("[!.]*.json"))

    def remove(self, step: float) -> None:
        """Forget one."""
        self._path(step).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Window]:
        return (self.load(step) for step in self.steps())

    def _path(self, step: float) -> Path:
        return self._directory / f"{datetime.fromtimestamp(step, UTC):%Y-%m-%dT%H-%M-%S}_{step:.3f}.json"


def iso(moment: float) -> str:
    """A moment in UTC, for people and programs."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def write_whole(path: Path, document: Any) -> None:
    """Write JSON atomically, also if we are killed."""
    half = path.with_name(f".{path.name}.half")
    half.write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
    half.replace(path)
