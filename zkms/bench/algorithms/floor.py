"""The least that a message through ZooKeeper takes with kazoo: one create, one watch event, one get."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.algorithms.original import KazooPublisher, client
from zkms.bench.algorithms.tally import Tally


def _path(place: BenchPlace, number: int) -> str:
    return f"{place.root}/floor/{number}"


class FloorPublisher(KazooPublisher):
    """Creates numbered znodes, so that a subscriber can wait for the next one by its name."""

    def __init__(self, place: BenchPlace) -> None:
        super().__init__(place)
        self._place = place
        self._client.ensure_path(f"{place.root}/floor")
        self._numbers = itertools.count()

    def publish_one(self, payload: bytes) -> None:
        """One create."""
        self._client.create(_path(self._place, next(self._numbers)), payload)


class FloorSubscriber:
    """Gets each znode when its watch fires, on kazoo's own thread, as nothing could be faster."""

    def __init__(self, place: BenchPlace, tally: Tally) -> None:
        self.names = ["floor"]
        self._place = place
        self._tally = tally
        self._client = client(place.address)
        self._client.ensure_path(f"{place.root}/floor")
        self._next = 0
        self._lock = threading.Lock()
        self._advance()

    def _advance(self) -> None:
        with self._lock:
            while self._client.exists(_path(self._place, self._next), watch=self._created):
                self._get()

    def _created(self, event: object) -> None:
        if getattr(event, "type", None) != "CREATED":
            return  # the session's end
        with self._lock:
            self._get()
        self._advance()

    def _get(self) -> None:
        data, _ = self._client.get(_path(self._place, self._next))
        self._next += 1
        self._tally.take(data)

    def settle(self, timeout: float) -> None:
        """Nothing is acked here."""

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()


publisher = FloorPublisher


def subscribers(place: BenchPlace, tallies: Sequence[Tally], *, first: int, session_timeout: float) -> FloorSubscriber:  # noqa: ARG001
    """Connect and wait for the first; there is one subscriber."""
    (tally,) = tallies
    return FloorSubscriber(place, tally)
