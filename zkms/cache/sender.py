"""The sender: brings invalidations to the other nodes, in order, as few messages as it can.

What is asked for while a message is under way is gathered and goes with the next one. A key that is asked for a
thousand times is in it once; more keys than `STORM` become one word: flush. If ZooKeeper does not answer, all of it is
kept and tried on; that is bounded too, since it is at most a flush.

Thread: `zkms-sender-TOPIC`.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from zkms.cache.invalidation import CODEC, Invalidation
from zkms.cache.keys import Key, encode_key
from zkms.cache.store import CacheStore
from zkms.errors import Closed, ConnectionLost, MessageTooLarge, Timeout, UsedAfterFork, ZkmsError

if TYPE_CHECKING:
    from zkms.bus import Bus
    from zkms.cache.pulse import Tell
    from zkms.publish.receipt import Receipt

log = logging.getLogger("zkms.cache")
STORM = 10_000
"""Keys and tags that wait at the most; more become one flush."""
STORM_BYTES = 256 * 1024
TRY_AGAIN = 0.2


class InvalidationBatch:
    """Invalidations that travel together; they do not depend on each other's order, as a later one is in the next."""

    def __init__(self) -> None:
        self.keys: dict[Key, bytes] = {}
        self.tags: dict[str, None] = {}
        self.everything = False
        self.size = 0
        self.receipt = _new_future()
        """For whoever asks for one of them."""
        self._earlier: list[weakref.ref[Future[Receipt]]] = []
        """Those of batches that could not be sent and have become part of this one, as long as somebody waits."""

    def __bool__(self) -> bool:
        return bool(self.keys or self.tags or self.everything)

    def add(self, keys: Iterable[Key], tags: Iterable[str], everything: bool) -> int:
        """Take these too; returns how many of them were in it already, so to speak."""
        known = 0
        if everything:
            known = int(self.everything)
            self.collapse()
        for key in keys:
            if self.everything or key in self.keys:
                known += 1
                continue
            raw = self.keys[key] = encode_key(key)
            self._grow(len(raw))
        for tag in tags:
            if self.everything or tag in self.tags:
                known += 1
                continue
            self.tags[tag] = None
            self._grow(len(tag.encode()))
        return known

    def _grow(self, size: int) -> None:
        self.size += size
        if len(self.keys) + len(self.tags) > STORM or self.size > STORM_BYTES:
            self.collapse()

    def collapse(self) -> None:
        """Say it in one word."""
        self.keys.clear()
        self.tags.clear()
        self.everything = True

    def absorb(self, younger: InvalidationBatch) -> None:
        """Go out together with what has come since."""
        self.add(younger.keys, younger.tags, younger.everything)
        earlier = [*self._earlier, weakref.ref(self.receipt), *younger._earlier]
        self.receipt = younger.receipt
        self._earlier = [each for each in earlier if each() is not None]

    def settle(self, receipt: Receipt | None, error: ZkmsError | None = None) -> None:
        """Answer all who wait."""
        futures = [self.receipt, *(future for each in self._earlier if (future := each()) is not None)]
        self.receipt, self._earlier = _new_future(), []
        for future in futures:
            if error is not None:
                future.set_exception(error)
            elif receipt is not None:
                future.set_result(receipt)

    def invalidation(self) -> Invalidation:
        """As it travels."""
        return Invalidation([*self.keys.values()], [*self.tags], self.everything)


class Sender:
    """Sends what one cache invalidates."""

    def __init__(self, bus: Bus, topic: str, store: CacheStore, tell: Tell) -> None:
        self._bus = bus
        self._topic = topic
        self._store = store
        self._tell = tell
        self._state = threading.Condition()
        self._batch = InvalidationBatch()
        self._busy = False
        self._failing = False
        self._closed = False
        self._over = False
        """Whether closing has taken long enough."""
        self._thread = threading.Thread(target=self._run, name=f"zkms-sender-{topic}", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def add(self, keys: Iterable[Key] = (), tags: Iterable[str] = (), *, everything: bool = False) -> Future[Receipt]:
        """Send these soon, after all that was added before; the Future has the receipt once they are sent."""
        keys, tags = list(keys), list(tags)
        with self._state:
            if self._closed:
                raise Closed("the cache is closed")
            known = self._batch.add(keys, tags, everything)
            self._store.asked(len(keys) + len(tags) + everything, known)
            self._state.notify_all()
            return self._batch.receipt

    def close(self, timeout: float) -> bool:
        """Send what waits, for at most so long; False if some could not be sent."""
        with self._state:
            self._closed = True
            self._state.notify_all()
            done = self._state.wait_for(lambda: not self._batch and not self._busy, timeout)
            self._over = True
            left, self._batch = self._batch, InvalidationBatch()
            self._state.notify_all()
        left.settle(None, Closed("the cache is closed"))
        if left:
            log.warning("%s was closed before all invalidations could be sent", self._topic)
        return done

    def _run(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closed or self._batch)
                if not self._batch:
                    return
                batch, self._batch = self._batch, InvalidationBatch()
                self._busy = True
            sent = self._send(batch)
            with self._state:
                self._busy = False
                if self._over:
                    batch.settle(None, Closed("the cache is closed"))
                    return
                if not sent:
                    batch.absorb(self._batch)
                    self._batch = batch
                self._state.notify_all()
                if not sent:
                    self._state.wait_for(lambda: self._over, TRY_AGAIN)

    def _send(self, batch: InvalidationBatch) -> bool:
        """False if it has to be tried again. An invalidation is never thrown away: others would serve old values."""
        try:
            receipt = self._bus.publish(
                self._topic, batch.invalidation(), to_self=False, if_nobody="drop", codec=CODEC
            )  # fmt: skip
        except (Closed, UsedAfterFork) as error:
            batch.settle(None, error)
            return True
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told and tried on
            if not self._failing:
                log.warning("invalidations of %s cannot be sent yet: %s", self._topic, error)
                self._tell("unsent", type(error).__name__, str(error))
            self._failing = True
            if not isinstance(error, (ConnectionLost, Timeout)):
                known = error if isinstance(error, ZkmsError) else ZkmsError(f"cannot be sent: {error!r}")
                batch.settle(None, known)
            if isinstance(error, MessageTooLarge):
                batch.collapse()
            return False
        self._failing = False
        self._store.sent()
        batch.settle(receipt)
        return True


def _new_future() -> Future[Receipt]:
    future: Future[Receipt] = Future()
    future.set_running_or_notify_cancel()  # it is shared: one who has waited long enough must not cancel it for others
    return future
