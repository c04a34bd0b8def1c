"""zkms itself, as a user uses it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import zkms
from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.algorithms.tally import Tally
from zkms.cli.connection import read_auth, read_tls
from zkms.errors import Timeout
from zkms.tree.records import MOST_BYTES

log = logging.getLogger("zkms.bench")
NO_LIMIT = 100_000_000
"""Messages that may wait: the benchmark measures what is stored and read, not what is dropped."""


def connect(place: BenchPlace, session_timeout: float = 30.0) -> zkms.Bus:
    """A bus, with the command line's credentials, that leaves cleaning to nobody: it would be measured as well."""
    return zkms.connect(
        place.address,
        place.root,
        cleaner=False,
        trail=place.trail,
        auth=read_auth(),
        tls=read_tls(),
        session_timeout=session_timeout,
        connect_timeout=30.0,
        request_timeout=60.0,
    )


class ZkmsPublisher:
    """publish_many() for all at once, publish() for one."""

    def __init__(self, place: BenchPlace) -> None:
        self.frame = 1
        self._topic = place.topic
        self._bus = connect(place)
        self._last: dict[int, Any] = {}

    def publish(self, payloads: Iterable[bytes]) -> None:
        """Packed and pipelined."""
        receipts = self._bus.publish_many(self._topic, payloads)
        if not receipts:
            return
        self.frame = max(receipt.count for receipt in receipts[:: max(1, len(receipts) // 1000)])
        self._last[threading.get_ident()] = receipts[-1]

    def publish_one(self, payload: bytes) -> None:
        """One."""
        self._last[threading.get_ident()] = self._bus.publish(self._topic, payload)

    def settle(self, timeout: float) -> float:
        """By the receipts of what was published last; then every queue is looked at."""
        deadline = time.monotonic() + timeout
        for receipt in self._last.values():
            receipt.wait(max(0.0, deadline - time.monotonic()))
            if receipt.pending:
                raise Timeout(f"not acked after {timeout:g} s: {receipt!r}")
            if receipt.gone:
                raise Timeout(f"dropped, not acked: {dict(receipt.gone)}")
        settled = time.monotonic()
        while [queue for queue in self._bus.queues() if queue.topic == self._topic and queue.entries > 0]:
            settled = time.monotonic()
            if settled > deadline:
                raise Timeout(f"queues are not empty after {timeout:g} s")
        return settled

    def close(self) -> None:
        """Close the bus."""
        self._bus.close()


class ZkmsSubscribers:
    """A bus for each, as if each were a node of its own."""

    def __init__(self, place: BenchPlace, tallies: Sequence[Tally], session_timeout: float) -> None:
        self._buses: list[zkms.Bus] = []
        self.names: list[str] = []
        for tally in tallies:
            bus = connect(place, session_timeout)
            self._buses.append(bus)
            sub = bus.subscribe(
                place.topic, tally.take_message, limit=NO_LIMIT, max_bytes=MOST_BYTES, on_gap=_gap, on_error=_error
            )
            self.names.append(sub.id)

    def settle(self, timeout: float) -> None:
        """Nothing to do: a publisher's receipt knows."""

    def close(self) -> None:
        """Close the buses, all at once: one after the other would take a while with many."""
        closing = [threading.Thread(target=bus.close) for bus in self._buses]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()


def _gap(gap: zkms.Gap) -> None:
    """A benchmark that lost messages has measured nothing."""
    _give_up("a gap in %r: %s", gap.topic, gap.reason)


def _error(error: Exception, _message: zkms.Message | None) -> None:
    _give_up("%s: %s", type(error).__name__, error)


def _give_up(reason: str, *values: object) -> None:
    log.error(reason, *values)
    os._exit(1)


publisher = ZkmsPublisher


def subscribers(place: BenchPlace, tallies: Sequence[Tally], *, first: int, session_timeout: float) -> ZkmsSubscribers:  # noqa: ARG001
    """Connect and subscribe."""
    return ZkmsSubscribers(place, tallies, session_timeout)
