"""The outcome of an invalidation: waits until the other nodes have dropped the old value, and says which have not.

A node has dropped it when it has acked the invalidation, or was closed. A node that vanishes (it crashed, or was cut
off for longer than its session) never acks. It cannot prove any more that it has missed nothing, so it stops serving
after `max_staleness` at the latest, and counts as one that has dropped the value from then on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from zkms.checks import check_seconds
from zkms.errors import Closed, ConnectionLost, UsedAfterFork, ZkmsError

if TYPE_CHECKING:
    from zkms.bus import Bus
    from zkms.publish.receipt import Receipt

UNSUBSCRIBED = "unsubscribed"
"""The reason in a receipt for a cache that was closed."""
NOT_YET = "has not dropped it yet"
LOOK_EVERY = 1.0
"""Seconds between two checks for vanished nodes."""
ANSWER = 1.0
"""Seconds that ZooKeeper has to answer such a check."""


class Outcome(msgspec.Struct, frozen=True):
    """True if every live node has dropped the value; else `missing` says which have not, and why."""

    dropped: tuple[str, ...] = ()
    """Clients that have dropped it, or cannot serve it any more, without this node."""
    missing: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Clients that may still serve the old value, at most for `max_staleness`, each with the reason."""
    error: ZkmsError | None = None
    """Why the invalidation could not be sent yet, if so; sending goes on."""

    @property
    def sent(self) -> bool:
        """Whether the invalidation is stored in ZooKeeper for every live node."""
        return self.error is None

    def __bool__(self) -> bool:
        return self.error is None and not self.missing


def deadline_of(wait: float | None) -> float | None:
    """Return the deadline after `wait` seconds, on time.monotonic(); None if the caller does not wait."""
    return None if wait is None else time.monotonic() + check_seconds("wait", wait)


def unsent(error: ZkmsError | TimeoutError) -> Outcome:
    """Return the outcome of an invalidation that could not be sent in time; raise if waiting is pointless."""
    if isinstance(error, Closed | UsedAfterFork):
        raise error
    if isinstance(error, ZkmsError):
        return Outcome(error=error)
    return Outcome(error=ConnectionLost("the invalidation could not be sent in time; it is tried on"))


def client_of(subscription: str) -> str:
    """Return the client in the id of a live subscription."""
    client, mark, number = subscription.rpartition("~")
    return client if mark and number.isdecimal() else subscription


class InvalidationWait:
    """Waits for one receipt. Used by one thread."""

    def __init__(self, bus: Bus, receipt: Receipt, max_staleness: float) -> None:
        self._bus = bus
        self._receipt = receipt
        self._max_staleness = max_staleness
        self._gone: dict[str, tuple[float, str]] = {}
        """By subscription: since when it is known to have vanished, and why."""
        self.why = NOT_YET
        """The reason given for missing nodes."""

    def wait(self, deadline: float, ended: threading.Event) -> Outcome:
        """Return when no node is missing, at the deadline, or when the cache is closed."""
        while True:
            try:
                self._receipt.wait_until(time.monotonic() + self.turn(deadline))
                self.look(deadline)
                self.why = NOT_YET
            except ConnectionLost as error:
                self.why = f"not known: {error}"
            missing = self.missing()
            left = deadline - time.monotonic()
            if not missing or left <= 0 or ended.is_set():
                return self.outcome(missing)
            if not self._receipt.pending:  # only vanished nodes are missing: wait for `max_staleness`
                ended.wait(min(left, max(0.0, self._silent_at() - time.monotonic())))

    # Single steps, for zkms.aio too.

    def turn(self, deadline: float) -> float:
        """Return the seconds to wait before the next look; the last wait is not shorter than the others."""
        left = max(0.0, deadline - time.monotonic())
        return left if left < 2 * LOOK_EVERY else LOOK_EVERY

    def look(self, deadline: float) -> None:
        """Find the pending nodes that are not registered any more."""
        now = time.monotonic()
        for name, reason in self._receipt.gone.items():
            if reason != UNSUBSCRIBED:
                self._gone.setdefault(name, (now, reason))
        if now >= deadline:
            return
        session, tree, topic = self._bus.parts.session, self._bus.parts.tree, self._receipt.topic
        asks = {
            name: partial(session.exists_async, tree.registration(topic, name))
            for name in self._receipt.pending
            if name not in self._gone
        }
        sent = {name: ask() for name, ask in asks.items()}
        for name, reply in sent.items():
            if session.answer(reply, asks[name], deadline=min(deadline, now + ANSWER)) is None:
                self._gone.setdefault(name, (time.monotonic(), "its session has ended"))

    def _silent_at(self) -> float:
        return max((since for since, _ in self._gone.values()), default=0.0) + self._max_staleness

    def missing(self) -> dict[str, str]:
        """Return the nodes that may still serve it, and why."""
        now = time.monotonic()
        missing = dict.fromkeys(self._receipt.pending, self.why)
        for name, (since, reason) in self._gone.items():
            if now < since + self._max_staleness:
                missing[name] = reason
            else:
                missing.pop(name, None)
        return missing

    def outcome(self, missing: dict[str, str]) -> Outcome:
        """Return the outcome with these missing nodes."""
        everybody = {*self._receipt.acked, *self._receipt.pending, *self._receipt.gone}
        return Outcome(
            tuple(sorted(client_of(name) for name in everybody - missing.keys())),
            {client_of(name): why for name, why in sorted(missing.items())},
        )
