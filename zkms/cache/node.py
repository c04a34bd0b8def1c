"""Connects a cache with the other nodes: it subscribes to invalidations, and sends our own.

Every cache has its own topic, to which all its nodes subscribe. A node acks an invalidation when it has applied it, so
the receipt says which nodes have dropped the old value.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from zkms.cache.invalidation import CODEC, Invalidation
from zkms.cache.keys import Key
from zkms.cache.outcome import InvalidationWait, Outcome, unsent
from zkms.cache.pulse import Pulse
from zkms.cache.sender import Sender
from zkms.cache.stats import CacheEvent, OnEvent
from zkms.cache.store import CacheStore
from zkms.deliver.inbox import Gap
from zkms.errors import Closed, ConnectionLost, ZkmsError
from zkms.message.message import Message
from zkms.names import check_topic
from zkms.subscribe.live_registration import EXPIRED

if TYPE_CHECKING:
    from zkms.bus import Bus
    from zkms.publish.receipt import Receipt

log = logging.getLogger("zkms.cache")
TOPIC = "zkms.cache."
LIMIT = 10_000
"""The most messages in this node's queue; more are a gap, and a flush is faster than applying them."""


class CacheNode:
    """Keeps one store coherent with those of the same name on other nodes. Thread-safe."""

    def __init__(self, bus: Bus, name: str, store: CacheStore, max_staleness: float, on_event: OnEvent | None) -> None:
        self.name = name
        self.topic = check_topic(f"{TOPIC}{name}" if isinstance(name, str) and name else name)
        self.closed = False
        self._bus = bus
        self._store = store
        self._max_staleness = max_staleness
        self._on_event = on_event
        self._stopping = threading.Lock()
        self._ended = threading.Event()
        self._sender = Sender(bus, self.topic, store, self._tell)

    def start(self) -> None:
        """Subscribe; no invalidation is missed after this returns, and usually this is also proved."""
        self._subscription = self._bus.subscribe(
            self.topic, self._apply, codec=CODEC, limit=LIMIT, on_gap=self._gap, on_error=self._unreadable
        )
        self._pulse = Pulse(self._bus, self._subscription, self._store, self._max_staleness, self._tell)
        self._pulse.start()
        self._sender.start()

    def check_open(self) -> None:
        """Raise `Closed`, or `UsedAfterFork` in a child process."""
        self._bus.parts.session.check_process()
        if self.closed:
            raise Closed(f"cache {self.name!r} is closed")

    # -- sending -------------------------------------------------------------------------------------------------

    def send(self, keys: Iterable[Key] = (), tags: Iterable[str] = (), *, everything: bool = False) -> Future[Receipt]:
        """Tell all other nodes to drop these; the Future gets the receipt when the message is stored."""
        return self._sender.add(keys, tags, everything=everything)

    def await_sent(self, sent: Future[Receipt], deadline: float | None) -> Outcome | None:
        """With a deadline, wait until every node has applied the invalidation; without one, return None at once."""
        if deadline is None:
            return None
        try:
            receipt = sent.result(max(0.0, deadline - time.monotonic()))
        except (TimeoutError, ZkmsError) as error:
            return unsent(error)
        return self.await_receipt(receipt, deadline)

    def await_receipt(self, receipt: Receipt, deadline: float) -> Outcome:
        """Wait until every node has applied the invalidation, or until the deadline on time.monotonic()."""
        return self.waiting(receipt).wait(deadline, self._ended)

    def waiting(self, receipt: Receipt) -> InvalidationWait:
        """Return the steps of await_receipt()."""
        return InvalidationWait(self._bus, receipt, self._max_staleness)

    # -- receiving, on the delivery thread -----------------------------------------------------------------------

    def _apply(self, message: Message) -> None:
        invalidation: Invalidation = message.data
        try:
            keys = invalidation.plain_keys()
        except Exception as error:  # noqa: BLE001 - whatever it is, the keys are unknown
            self._unreadable(error, message)
            return
        self._store.received()
        if invalidation.everything:
            self.flush("told", f"{message.producer} said so")
        else:
            self._store.drop(keys, invalidation.tags)

    def _gap(self, gap: Gap) -> None:
        self.flush("expired" if gap.reason == EXPIRED else "gap", gap.reason)

    def _unreadable(self, error: Exception, _message: Message | None) -> None:
        self.flush("unreadable", f"an invalidation cannot be read: {error}")

    def flush(self, reason: str, detail: str) -> None:
        """Drop everything here, and report the reason."""
        self._store.flush(reason)
        self._tell("flushed", reason, detail)

    def _tell(self, kind: str, reason: str, detail: str) -> None:
        log.info("cache %r %s: %s (%s)", self.name, kind, reason, detail)
        if self._on_event is not None:
            try:
                self._on_event(CacheEvent(self.name, kind, reason, detail))
            except Exception:
                log.exception("on_event of cache %r raised", self.name)

    # -- the end -------------------------------------------------------------------------------------------------

    def stop(self, timeout: float) -> bool:
        """Stop serving, then send waiting invalidations; False if it was stopped before."""
        with self._stopping:
            if self.closed:
                return False
            self.closed = True
        self._pulse.close()
        self._ended.set()
        self._sender.close(timeout)
        self._store.flush("closed")
        return True

    def leave(self, timeout: float) -> None:
        """Unsubscribe; call it after stop()."""
        try:
            self._subscription.unsubscribe(timeout)
        except Closed:
            log.debug("cache %r was unsubscribed by its bus, which was closed meanwhile", self.name)
        except ConnectionLost as error:
            log.warning("cache %r: its registration ends with the session: %s", self.name, error)
