"""What a benchmark asks of an algorithm: a module with `publisher(place)` and `subscribers(place, tallies, first)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Protocol, cast

import msgspec

from zkms.bench.algorithms.tally import Tally


class BenchPlace(msgspec.Struct, frozen=True):
    """Where an algorithm works: a server's address, a root of its own there, and the topic."""

    address: str
    root: str
    topic: str = "bench"
    trail: str | None = None
    """Directory to record into."""


class Publishing(Protocol):
    """One publisher."""

    frame: int
    """Messages that travelled together at the most, if the algorithm packs them."""

    def publish(self, payloads: Iterable[bytes]) -> None:
        """Publish all as fast as it can, and return when they are stored."""

    def publish_one(self, payload: bytes) -> None:
        """Publish one at once; several threads may."""

    def settle(self, timeout: float) -> float:
        """Return when all is acked, as far as a publisher can know, and the time since when that is so."""

    def close(self) -> None:
        """Disconnect."""


class Subscribing(Protocol):
    """Some subscribers in one process; a tally is the handler of each."""

    @property
    def names(self) -> list[str]:
        """What the server calls them."""

    def settle(self, timeout: float) -> None:
        """Return when everything that the tallies have taken is acked, as far as a subscriber can know."""

    def close(self) -> None:
        """Unsubscribe."""


class Algorithm(Protocol):
    """The module."""

    def publisher(self, place: BenchPlace) -> Publishing:
        """Connect."""

    def subscribers(
        self, place: BenchPlace, tallies: Sequence[Tally], *, first: int, session_timeout: float
    ) -> Subscribing:
        """Subscribe, one for each tally; from when this returns nothing is missed."""


def load(name: str) -> Algorithm:
    """The module of that name."""
    return cast(Algorithm, import_module(name))
