"""kazoo's LockingQueue: a queue a subscriber; 64 messages are put in one transaction, each is taken and consumed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import islice

from kazoo.recipe.queue import LockingQueue

from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.algorithms.original import QueueReaders, client
from zkms.bench.algorithms.tally import Tally
from zkms.errors import Timeout

DEPTH = 64
WAIT = 0.2


class Publisher:
    """Puts into one queue after the other."""

    def __init__(self, place: BenchPlace) -> None:
        self.frame = 1
        self._client = client(place.address)
        names = self._client.get_children(f"{place.root}/queues")
        self._queues = [LockingQueue(self._client, f"{place.root}/queues/{name}") for name in sorted(names)]

    def publish(self, payloads: Iterable[bytes]) -> None:
        """64 at a time."""
        left = iter(payloads)
        while batch := list(islice(left, DEPTH)):
            for queue in self._queues:
                queue.put_all(batch)

    def publish_one(self, payload: bytes) -> None:
        """One."""
        for queue in self._queues:
            queue.put(payload)

    def settle(self, timeout: float) -> float:  # noqa: ARG002
        """The subscribers know."""
        return time.monotonic()

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()


class Subscriber:
    """A client, its queue and a thread."""

    def __init__(self, place: BenchPlace, tally: Tally, name: str) -> None:
        self._client = client(place.address)
        self._queue = LockingQueue(self._client, f"{place.root}/queues/{name}")
        self._client.ensure_path(f"{place.root}/queues/{name}")
        self._tally = tally
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            data = self._queue.get(timeout=WAIT)
            if data is not None:
                self._tally.take(data)
                self._queue.consume()

    def settle(self, deadline: float) -> None:
        """Return when the queue is empty."""
        while len(self._queue):
            if time.monotonic() > deadline:
                raise Timeout("a LockingQueue is not empty in time")

    def close(self) -> None:
        """End the session."""
        self._closed = True
        self._thread.join(5)
        self._client.stop()
        self._client.close()


def publisher(place: BenchPlace) -> Publisher:
    """Connect."""
    return Publisher(place)


def subscribers(place: BenchPlace, tallies: Sequence[Tally], *, first: int, session_timeout: float) -> QueueReaders:  # noqa: ARG001
    """Make the queues."""
    names = [f"subscriber-{first + i:04}" for i in range(len(tallies))]
    return QueueReaders(names, [Subscriber(place, tally, name) for tally, name in zip(tallies, names, strict=True)])
