"""The names below `delayed/`: a bucket for each ten seconds, with the frames that become due then and `Moved` records.

A frame's name is `d.DUE.PRIORITY.NOBODY.COUNT.BYTES.NUMBER.LENGTH.PRODUCER.TOPIC`. DUE is in milliseconds. The name is
enough to count the frame, and its publisher knows it without a reply. `NOBODY` says what happens if nobody subscribes
when it is due: `k` keeps it as a dead letter, `d` drops it. `LENGTH` is that of PRODUCER.

A frame that has been moved into the queues is replaced for a minute or two by a `Moved` record, `m.NUMBER.PRODUCER`,
which tells receipts where it went.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from zkms.tree.paths import Tree

BUCKET = 10
"""Seconds of one bucket."""
KEEP = 60.0
"""Seconds after the end of a bucket for which its `Moved` records stay."""
WAITING = "~delayed"
"""The name in a receipt of a message that is not due yet; no subscription can have it."""
NOBODY = "nobody"
"""The subscription name of dead letters that had no subscribers when they were due."""
_NAME = re.compile(r"d\.(\d{1,15})\.(\d)\.([kd])\.(\d{1,9})\.(\d{1,9})\.(\d{1,18})\.(\d{1,3})\.(.+)", re.ASCII)


class Delayed(NamedTuple):
    """A frame that is not due yet, as its name describes it. Sorts by due time."""

    due: int
    """Milliseconds since the epoch."""
    number: int
    """The number of its first message."""
    producer: str
    topic: str
    bucket: int
    """The start of its bucket, in seconds since the epoch."""
    messages: int = 1
    size: int = 0
    priority: int = 0
    drop: bool = False
    """Whether it is dropped if nobody subscribes when it is due."""

    @property
    def name(self) -> str:
        """The name of its znode."""
        nobody = "d" if self.drop else "k"
        return (
            f"d.{self.due}.{self.priority}.{nobody}.{self.messages}.{self.size}.{self.number}.{len(self.producer)}."
            f"{self.producer}.{self.topic}"
        )

    def path(self, tree: Tree) -> str:
        """Return its path."""
        return f"{tree.bucket(self.bucket)}/{self.name}"

    def record(self, tree: Tree) -> str:
        """Return the path of its `Moved` record."""
        return f"{tree.bucket(self.bucket)}/m.{self.number}.{self.producer}"


def bucket_of(due: float, now: float) -> int:
    """Return the bucket of a due time; overdue frames go into the current one, which the leader reads first."""
    return int(max(due, now)) // BUCKET * BUCKET


def milliseconds(due: float) -> int:
    """Return a due time in milliseconds, rounded up so that nothing is early."""
    return max(0, math.ceil(due * 1000))


def parse_bucket(name: str) -> int | None:
    """Return the start of a bucket; None if zkms did not make the name."""
    return int(name) if len(name) == 12 and name.isascii() and name.isdigit() else None


def parse_delayed(bucket: int, name: str) -> Delayed | None:
    """Parse the name of a frame in a bucket; None if zkms did not make it."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    due, priority, nobody, count, size, number, length, rest = match.groups()
    producer, topic = rest[: int(length)], rest[int(length) + 1 :]
    if not producer or topic in ("", ".", "..") or rest[int(length)] != ".":
        return None
    return Delayed(
        int(due), int(number), producer, topic, bucket, int(count), int(size), int(priority), drop=nobody == "d"
    )


def is_record(name: str) -> bool:
    """Whether a name in a bucket is that of a `Moved` record."""
    return name.startswith("m.")
