"""The history of reads and writes, and the check whether it was allowed.

A write is stamped when its commit begins, when its invalidation is known to be sent, and when its wait has returned. A
read is stamped before it begins. All clocks are the machine's monotonic one, so stamps of all processes compare.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("<IIddd")
NEVER = float("inf")


class Write(NamedTuple):
    """One change of a row."""

    version: int
    begun: float
    sent: float
    """`NEVER` if the invalidation was not sent in time."""
    done: float
    """When every node was known to have dropped the old value; `NEVER` if some were missing."""


class History:
    """Appends the reads and writes of one thread to a file, which `check` reads."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def read(self, key: int, version: int, begun: float) -> None:
        """Note the version that a read has seen, and when the read began."""
        self._file.write(_RECORD.pack(key, version, begun, -1.0, -1.0))

    def write(self, key: int, write: Write) -> None:
        """Note a finished write."""
        self._file.write(_RECORD.pack(key, *write))

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()


@dataclass
class Findings:
    """The result of the check."""

    reads: int = 0
    writes: int = 0
    finished: int = 0
    """Writes of which every node was known to have dropped the old value."""
    broken: list[str] = field(default_factory=list)
    """Reads that began after a writer's call had returned, and saw an older value."""
    stale: list[str] = field(default_factory=list)
    """Reads of a value that had been invalidated more than `max_staleness` before."""
    moments: dict[str, list[float]] = field(default_factory=dict)
    """When writes were finished, by the name of the file."""
    oldest: float = 0.0
    """Seconds between the beginning of a commit and the last read of what it replaced."""

    def __str__(self) -> str:
        return (
            f"{self.reads:,} reads, {self.writes:,} writes ({self.finished:,} known to all): "
            f"{len(self.broken)} older than a finished write, {len(self.stale)} older than max_staleness; "
            f"oldest value read {self.oldest * 1000:.0f} ms after its successor's commit began"
        )


def check(paths: Iterable[Path], max_staleness: float) -> Findings:
    """Compare all reads with all writes."""
    reads: dict[int, list[tuple[float, int]]] = defaultdict(list)
    writes: dict[int, list[Write]] = defaultdict(list)
    moments: dict[str, list[float]] = {}
    for path in paths:
        data = path.read_bytes()
        moments[path.name] = []
        for key, version, begun, sent, done in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
            if done < 0:
                reads[key].append((begun, version))
            else:
                writes[key].append(Write(version, begun, sent, done))
                moments[path.name] += [done] if done != NEVER else []
    counts = [sum(map(len, each.values())) for each in (reads, writes)]
    findings = Findings(reads=counts[0], writes=counts[1], moments=moments)
    for key in writes.keys() | reads.keys():
        _check_key(key, reads[key], sorted(writes[key]), max_staleness, findings)
    return findings


def _check_key(
    key: int, reads: list[tuple[float, int]], writes: list[Write], max_staleness: float, findings: Findings
) -> None:
    finished = _floor((write.done, write.version) for write in writes)
    told = _floor((write.sent + max_staleness, write.version) for write in writes)
    findings.finished += len(finished[0])
    versions = [write.version for write in writes]
    for begun, version in reads:
        for (times, floors), found in ((finished, findings.broken), (told, findings.stale)):
            place = bisect_right(times, begun)
            if place and floors[place - 1] > version:
                late = begun - times[place - 1]
                found.append(f"key {key}: read {version} instead of {floors[place - 1]}, {late:.3f} s too late")
        successor = bisect_right(versions, version)
        if successor < len(writes):
            findings.oldest = max(findings.oldest, begun - writes[successor].begun)


def _floor(events: Iterable[tuple[float, int]]) -> tuple[list[float], list[int]]:
    """Moments in order, and the version that every read from then on must have seen at least."""
    times: list[float] = []
    floors: list[int] = []
    for moment, version in sorted(event for event in events if event[0] != NEVER):
        times.append(moment)
        floors.append(max(version, floors[-1] if floors else 0))
    return times, floors
