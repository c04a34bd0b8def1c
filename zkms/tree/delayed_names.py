"""What is in `delayed/`: a bucket for each ten seconds, in it the frames that become due then, and what became of them.

A frame's name is `d.DUE.PRIORITY.NOBODY.COUNT.BYTES.NUMBER.LENGTH.PRODUCER.TOPIC`: when it is due, in milliseconds, all
that has to be known to count it, and whose it is, so that its publisher knows the name without an answer. `NOBODY` is
`k` to keep it as a dead letter where nobody subscribes when it is due, `d` to drop it; `LENGTH` is that of PRODUCER.

When a frame has been moved into the queues, a `Moved` record named `m.NUMBER.PRODUCER` takes its place for a minute or
two: a receipt that follows its message finds there who got it.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from zkms.tree.paths import Tree

BUCKET = 10
"""Seconds of one bucket."""
KEEP = 60.0
"""Seconds after the end of a bucket for which it is known who got what was due in it."""
WAITING = "~delayed"
"""What a receipt calls the place where a message waits until it is due; no subscription can have this name."""
NOBODY = "nobody"
"""Whose dead letters are those that nobody subscribed to when they were due."""
_NAME = re.compile(r"d\.(\d{1,15})\.(\d)\.([kd])\.(\d{1,9})\.(\d{1,9})\.(\d{1,18})\.(\d{1,3})\.(.+)", re.ASCII)


class Delayed(NamedTuple):
    """A frame that is not due yet, as its name tells it. In the order of what is due first."""

    due: int
    """Milliseconds since the epoch."""
    number: int
    """Of its first message."""
    producer: str
    topic: str
    bucket: int
    """Seconds since the epoch: where the bucket begins."""
    messages: int = 1
    size: int = 0
    priority: int = 0
    drop: bool = False
    """Whether it may be thrown away where nobody subscribes."""

    @property
    def name(self) -> str:
        """Of its znode."""
        nobody = "d" if self.drop else "k"
        return (
            f"d.{self.due}.{self.priority}.{nobody}.{self.messages}.{self.size}.{self.number}.{len(self.producer)}."
            f"{self.producer}.{self.topic}"
        )

    def path(self, tree: Tree) -> str:
        """Where it waits."""
        return f"{tree.bucket(self.bucket)}/{self.name}"

    def record(self, tree: Tree) -> str:
        """Where the record is of what became of it."""
        return f"{tree.bucket(self.bucket)}/m.{self.number}.{self.producer}"


def bucket_of(due: float, now: float) -> int:
    """The bucket for what is due then; what is overdue goes where the leader looks first."""
    return int(max(due, now)) // BUCKET * BUCKET


def milliseconds(due: float) -> int:
    """Rounded up, for nothing may be early."""
    return max(0, math.ceil(due * 1000))


def parse_bucket(name: str) -> int | None:
    """Where a bucket begins; None if it is no bucket of ours."""
    return int(name) if len(name) == 12 and name.isascii() and name.isdigit() else None


def parse_delayed(bucket: int, name: str) -> Delayed | None:
    """What a name in a bucket says; None if it is no frame of ours."""
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
    """Whether a name in a bucket is that of a record of what became of a frame."""
    return name.startswith("m.")
