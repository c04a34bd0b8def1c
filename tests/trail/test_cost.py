"""What a trail costs: within one run, in turns, by the CPU that it takes, which other processes do not change."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import zkms
from tests.support.buses import Connect

SUBSCRIBERS = 20
MESSAGES = 20_000
ROUNDS = 3
MOST = 1.6
"""Times the CPU without: it is a few per cent, but what is measured here is small."""


class Audience:
    """A publisher and its subscribers, each with a bus of its own."""

    def __init__(self, connect: Connect, topic: str, trail: Path | None) -> None:
        self._counts = [0] * SUBSCRIBERS
        self._topic = topic
        for number in range(SUBSCRIBERS):
            connect(trail=trail).subscribe(topic, self._counter(number))
        self._bus = connect(trail=trail)

    def _counter(self, number: int) -> Callable[[zkms.Message], None]:
        def count(_message: zkms.Message) -> None:
            self._counts[number] += 1

        return count

    def cpu(self, eventually: Callable[..., None]) -> float:
        """Seconds of CPU until all have got all."""
        self._counts[:] = [0] * SUBSCRIBERS
        began = time.process_time()
        self._bus.publish_many(self._topic, range(MESSAGES))
        eventually(lambda: min(self._counts) == MESSAGES, timeout=120.0, what="the last message")
        return time.process_time() - began


def test_a_trail_costs_little(connect: Connect, trail: Path, eventually: Callable[..., None]) -> None:
    """Twenty subscribers, with and without; the best of some rounds of each."""
    audiences = [Audience(connect, "plain", None), Audience(connect, "recorded", trail)]
    plain, recorded = zip(*[[a.cpu(eventually) for a in audiences] for _ in range(ROUNDS)], strict=True)
    assert min(recorded) < MOST * min(plain), f"CPU seconds without {plain}, with {recorded}"
