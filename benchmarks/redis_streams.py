"""Redis Streams: one stream a topic, one consumer group a subscriber.

A publisher sends pipelines of 64 XADDs. A subscriber acks what it has read and asks for more in one round trip.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import redis

from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.algorithms.tally import Tally
from zkms.errors import Timeout

DEPTH = 64
READ = 1024
BLOCK = 200
FIELD = b"d"


def _connect(place: BenchPlace) -> Any:
    host, port = place.address.split(":")
    return redis.Redis(host=host, port=int(port))


def _stream(place: BenchPlace) -> str:
    return f"{place.root}/{place.topic}"


def _entries(answer: Any) -> Any:
    """What was read from the one stream: RESP2 answers with pairs, RESP3 with a mapping, nested once more."""
    if not answer:
        return ()
    return next(iter(answer.values()))[0] if isinstance(answer, dict) else answer[0][1]


class Publisher:
    """One connection; a pipeline's answers are read together."""

    def __init__(self, place: BenchPlace) -> None:
        self.frame = 1
        self._stream = _stream(place)
        self._redis = _connect(place)

    def publish(self, payloads: Iterable[bytes]) -> None:
        """64 at a time."""
        left = iter(payloads)
        while batch := list(islice(left, DEPTH)):
            pipeline = self._redis.pipeline(transaction=False)
            for payload in batch:
                pipeline.xadd(self._stream, {FIELD: payload})
            pipeline.execute()

    def publish_one(self, payload: bytes) -> None:
        """One."""
        self._redis.xadd(self._stream, {FIELD: payload})

    def settle(self, timeout: float) -> float:  # noqa: ARG002
        """The subscribers know."""
        return time.monotonic()

    def close(self) -> None:
        """Disconnect."""
        self._redis.close()


class Subscriber:
    """A consumer group, a connection and a thread."""

    def __init__(self, place: BenchPlace, tally: Tally, name: str) -> None:
        self._stream, self._group, self._tally = _stream(place), name, tally
        self._redis = _connect(place)
        self._redis.xgroup_create(self._stream, name, id="$", mkstream=True)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        take = self._tally.take
        done: list[bytes] = []
        while not self._closed:
            pipeline = self._redis.pipeline(transaction=False)
            if done:
                pipeline.xack(self._stream, self._group, *done)
            pipeline.xreadgroup(self._group, "only", {self._stream: ">"}, count=READ, block=BLOCK)
            done = []
            answer = pipeline.execute()[-1]
            for number, fields in _entries(answer):
                take(fields[FIELD])
                done.append(number)

    def settle(self, deadline: float, other: Any) -> None:
        """Return when nothing is pending; `other` is a connection that does not wait for messages."""
        while other.xpending(self._stream, self._group)["pending"]:
            if time.monotonic() > deadline:
                raise Timeout(f"{self._group} has not acked all in time")

    def close(self) -> None:
        """Disconnect."""
        self._closed = True
        self._thread.join(5)
        self._redis.close()


class Subscribers:
    """A connection for each."""

    def __init__(self, place: BenchPlace, tallies: Sequence[Tally], first: int) -> None:
        self.names = [f"subscriber-{first + i}" for i in range(len(tallies))]
        self._subscribers = [Subscriber(place, tally, name) for tally, name in zip(tallies, self.names, strict=True)]
        self._other = _connect(place)

    def settle(self, timeout: float) -> None:
        """Ask Redis."""
        deadline = time.monotonic() + timeout
        for subscriber in self._subscribers:
            subscriber.settle(deadline, self._other)

    def close(self) -> None:
        """Disconnect."""
        for subscriber in self._subscribers:
            subscriber.close()
        self._other.close()


def publisher(place: BenchPlace) -> Publisher:
    """Connect."""
    return Publisher(place)


def subscribers(place: BenchPlace, tallies: Sequence[Tally], *, first: int, session_timeout: float) -> Subscribers:  # noqa: ARG001
    """Make the groups."""
    return Subscribers(place, tallies, first)
