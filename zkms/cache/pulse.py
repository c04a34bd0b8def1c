"""The pulse: proves periodically that no invalidation was missed.

A proof is a transaction that checks that our registration exists, and a read of the number of entries that our queue
has ever had. It succeeds when all of them have been applied. Then everything that was published before the proof was
*sent* is applied, and the store is trusted for `max_staleness` from that moment. This is less than the session timeout,
which ZooKeeper counts from when it *received* the request: so a node that is cut off stops serving before its
registration vanishes and others stop waiting for it.

Thread: `zkms-pulse-TOPIC`. It costs a transaction that changes nothing and a read of one znode, four times in
`max_staleness`.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from zkms.cache.settings import SHARE
from zkms.cache.store import NEVER, CacheStore, clock
from zkms.errors import Closed, ConnectionLost, NodeMissing, TransactionFailed, ZkmsError
from zkms.zookeeper.operations import Check
from zkms.zookeeper.recipes import count_created
from zkms.zookeeper.session import State, failed_with

if TYPE_CHECKING:
    from zkms.bus import Bus
    from zkms.deliver.live import Subscription
    from zkms.zookeeper.wire import Stat

log = logging.getLogger("zkms.cache")
BEATS = 4
"""Proofs in each `max_staleness`."""
LOOK_AGAIN = 0.002

Tell = Callable[[str, str, str], None]


class Pulse:
    """Keeps a store trusted as long as it can prove that."""

    def __init__(
        self, bus: Bus, subscription: Subscription, store: CacheStore, max_staleness: float, tell: Tell
    ) -> None:
        self._bus = bus
        self._session = bus.parts.session
        self._subscription = subscription
        self._store = store
        self._max_staleness = max_staleness
        self._tell = tell
        self._generation = self._session.generation
        self._caught_up = ("", 0)
        """A queue, and how many of its entries need not be applied, because everything was flushed."""
        self._was_trusted = False
        self._lost = False
        self._closed = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"zkms-pulse-{subscription.topic}", daemon=True)

    def start(self) -> None:
        """Prove it once, if ZooKeeper answers in time; then continue on the thread."""
        self._try()
        me = weakref.ref(self)

        def changed() -> None:  # the session keeps its listeners for ever, so this one has only a weak reference
            pulse = me()
            if pulse is not None:
                pulse.session_changed()

        self._session.listen(changed)
        self._thread.start()

    def close(self) -> None:
        """Stop, and make the store untrusted for ever."""
        self._closed = True
        self._wake.set()
        with self._store.lock:
            self._store.until = NEVER

    def session_changed(self) -> None:
        """Make the store untrusted if the session is a new one: the old one was lost. Runs on kazoo's thread."""
        if self._session.generation != self._generation:
            self._generation = self._session.generation
            self._store.until = NEVER
        self._wake.set()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(self._max_staleness / BEATS)
            self._wake.clear()
            if not self._closed:
                self._try()

    def _try(self) -> None:
        reason = "no answer from ZooKeeper"
        try:
            reason = self._beat() or reason
        except Closed:
            return
        except ZkmsError as error:
            reason = str(error)
        except Exception as error:
            log.exception("the pulse of %r failed", self._subscription.topic)
            reason = repr(error)
        trusted = self._store.trusted
        if trusted != self._was_trusted and not self._closed:
            self._was_trusted = trusted
            self._tell("trusted" if trusted else "untrusted", "proved" if trusted else "unproved", reason)

    def _beat(self) -> str | None:
        """Try to prove it; return why that failed, if known."""
        session, tree, subscription = self._session, self._bus.parts.tree, self._subscription
        if session.state is not State.CONNECTED:
            return f"the session is {session.state.value}"
        generation, sent = session.generation, clock()
        own = subscription.id
        queue = tree.queue(own, subscription.topic)
        # Replies come in the order of sending: the second one is no older than the first.
        alive = session.multi_async([Check(tree.registration(subscription.topic, own), -1)])
        look = session.exists_async(queue)
        try:
            alive.result(self._max_staleness)
            stat = look.result(self._max_staleness)
        except TimeoutError:
            return None
        except ConnectionLost as error:
            return str(error)
        except TransactionFailed as error:
            if not failed_with(error, NodeMissing):
                raise
            return self._missing(own, "the registration is gone")
        if stat is None:
            return self._missing(own, "the queue is gone")
        if not self._applied(queue, stat, sent):
            return "invalidations wait to be applied"
        self._prove(sent, generation)
        return None

    def _missing(self, own: str, reason: str) -> str:
        """Flush and register again: publishers do not know us any more, so our values may be old."""
        if self._subscription.id != own:
            self._wake.set()  # it has another queue now: look there
            return reason
        self._store.until = NEVER
        if not self._lost:
            self._lost = True
            self._store.flush("unregistered")
            self._tell("flushed", "unregistered", reason)
        self._bus.parts.live_registration.repair(self._subscription)
        return reason

    def _applied(self, queue: str, stat: Stat, sent: float) -> bool:
        """Whether all entries that the queue has ever had are applied; waits a while for the rest."""
        created = count_created(stat)
        pause = LOOK_AGAIN
        while not self._closed:
            if created == 0 or any(q == queue and n >= created for q, n in (self._subscription.seen, self._caught_up)):
                return True
            if stat.numChildren == 0:
                # Another client has removed them: the gap will flush the cache anyway, so do it now.
                self._store.flush("unread")
                self._tell("flushed", "unread", "entries of the queue were removed unread")
                self._caught_up = (queue, created)
                return True
            if clock() + pause >= sent + self._max_staleness:
                return False
            if self._wake.wait(pause):
                return False  # the session has changed, or the cache is closed
            pause = min(0.05, pause * 2)
        return False

    def _prove(self, sent: float, generation: int) -> None:
        bound = min(self._max_staleness, self._session.timeout * SHARE)
        self._lost = False
        with self._store.lock:
            if not self._closed:
                self._store.until = max(self._store.until, sent + bound)
        if self._session.generation != generation:
            self._store.until = NEVER  # session_changed() may have run just before, and we have undone it
