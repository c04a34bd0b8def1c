"""How a publisher publishes: one by one, many at once, or as a stream; small, or so large that it becomes a body.

It notes the outcome of each message: stored, refused, or unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zkms
from verification.simulation.disguise import FRAME

if TYPE_CHECKING:
    from verification.simulation.workloads.base import Workload

MOST = 5
"""Messages that are published together at the most."""
LARGE = "x" * 9_000
"""A message with this is stored once, as a body, where there are two subscriptions or more."""
SHORT = 0.25
"""Seconds that a publisher in a hurry waits: then the outcome is often unknown."""
Place = tuple[str, int]
"""Publisher and number."""


@dataclass
class Sent:
    """The outcome of one message, as its publisher knows it."""

    number: int
    begun: float
    state: str = "unknown"
    """`stored`, `refused`, or `unknown`."""
    due: float = 0.0
    priority: int = 0
    frame: int = -1
    """The same for messages that were stored together, or not at all: the number of the first."""


class Publishing:
    """One publisher's way to publish."""

    def __init__(self, workload: Workload, bus: zkms.Bus, topic: str, name: str, sent: list[Sent]) -> None:
        self.bus = bus
        self.name = name
        self._workload = workload
        self._topic = topic
        self._sent = sent

    def some(self, numbers: range) -> None:
        """Publish these in some way."""
        work = self._workload
        way = work.ways[work.number(len(work.ways)) - 1]
        priority = work.priorities[work.number(len(work.priorities)) - 1]
        large = way != "one" and work.chance(0.3)
        timeout = SHORT if work.chance(0.2) else None
        if way == "many":
            self._many(numbers, priority, timeout, large=large)
        elif way == "stream":
            self._stream(numbers, timeout, large=large)
        else:
            for number in numbers:
                self._one(number, priority, timeout)

    def begin(self, number: int, priority: int = 0, frame: int | None = None) -> Sent:
        """Note that a message is about to be published."""
        entry = Sent(
            number, self._workload.world.now, priority=priority, frame=number if frame is None else frame
        )  # fmt: skip
        self._sent.append(entry)
        return entry

    @contextmanager
    def told(self, entries: list[Sent]) -> Iterator[None]:
        """Note the outcome of these messages, which are one frame."""
        state = "unknown"
        try:
            yield
            state = "stored"
        except (zkms.NoSubscribers, zkms.NoCleaner, zkms.QueueFull, zkms.Timeout) as error:
            state = "refused"
            self._workload.turned_away(error, entries)
        except zkms.ConnectionLost as error:
            state = "unknown" if error.outcome_unknown else "refused"
        if state == "refused" and len({entry.frame for entry in entries}) > 1:
            state = "unknown"  # some of the frames may have been stored before
        for entry in entries:
            entry.state = state

    def _data(self, number: int, *, large: bool = False) -> dict[str, Any]:
        data: dict[str, Any] = {"by": self.name, "number": number}
        return {**data, "more": LARGE} if large else data

    def _one(self, number: int, priority: int, timeout: float | None) -> None:
        entry = self.begin(number, priority)
        key = self._workload.key(self.name, number)
        with self.told([entry]):
            self.bus.publish(self._topic, self._data(number), key=key, priority=priority, timeout=timeout)

    def _many(self, numbers: range, priority: int, timeout: float | None, *, large: bool) -> None:
        entries = [
            self.begin(number, priority, frame=numbers[(number - numbers[0]) // FRAME * FRAME]) for number in numbers
        ]
        keyed = self._workload.key(self.name, 0) is not None
        with self.told(entries):
            self.bus.publish_many(
                self._topic,
                [self._data(number, large=large) for number in numbers],
                key=(lambda data: str(self._workload.key(self.name, data["number"]))) if keyed else None,
                priority=priority,
                timeout=timeout,
            )

    def _stream(self, numbers: range, timeout: float | None, *, large: bool) -> None:
        waiting = []
        try:
            with self.bus.publisher(
                self._topic, linger=0.005 * (self._workload.number(3) - 1), timeout=timeout
            ) as stream:  # fmt: skip
                for number in numbers:
                    entry = self.begin(number)
                    key = self._workload.key(self.name, number)
                    waiting.append((entry, stream.send(self._data(number, large=large), key=key)))
        except (zkms.Timeout, zkms.ConnectionLost):
            pass  # the outcome of each message is read below
        # Other publishes have no order with messages in flight: wait for all.
        for entry, way in waiting:
            with self.told([entry]):
                way.result()
