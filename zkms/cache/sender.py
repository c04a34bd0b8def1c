"""The sender: sends invalidations to the other nodes, in order and in few messages.

Invalidations that come while a message is in flight are gathered into the next one. A key that is invalidated a
thousand times is in it once; more than `STORM` keys and tags become one flush. If ZooKeeper does not answer, all of
them are kept and sent later; their size is bounded, because they become a flush at most.

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
"""The most keys and tags in a message; more become one flush."""
STORM_BYTES = 256 * 1024
TRY_AGAIN = 0.2


class InvalidationBatch:
    """Invalidations that are sent in one message; their order does not matter."""

    def __init__(self) -> None:
        self.keys: dict[Key, bytes] = {}
        self.tags: dict[str, None] = {}
        self.everything = False
        self.size = 0
        self.receipt = _new_future()
        """The receipt to come, for all callers."""
        self._earlier: list[weakref.ref[Future[Receipt]]] = []
        """The receipts of earlier batches that could not be sent and are part of this one, while somebody waits."""

    def __bool__(self) -> bool:
        return bool(self.keys or self.tags or self.everything)

    def add(self, keys: Iterable[Key], tags: Iterable[str], everything: bool) -> int:
        """Add these, and return how many of them it already contained."""
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
        """Replace all keys and tags by a flush."""
        self.keys.clear()
        self.tags.clear()
        self.everything = True

    def absorb(self, younger: InvalidationBatch) -> None:
        """Add a later batch."""
        self.add(younger.keys, younger.tags, younger.everything)
        earlier = [*self._earlier, weakref.ref(self.receipt), *younger._earlier]
        self.receipt = younger.receipt
        self._earlier = [each for each in earlier if each() is not None]

    def settle(self, receipt: Receipt | None, error: ZkmsError | None = None) -> None:
        """Set the result for all callers."""
        futures = [self.receipt, *(future for each in self._earlier if (future := each()) is not None)]
        self.receipt, self._earlier = _new_future(), []
        for future in futures:
            if error is not None:
                future.set_exception(error)
            elif receipt is not None:
                future.set_result(receipt)

    def invalidation(self) -> Invalidation:
        """Return the message."""
        return Invalidation([*self.keys.values()], [*self.tags], self.everything)


class Sender:
    """Sends the invalidations of one cache."""

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
        """Whether the timeout of close() is over."""
        self._thread = threading.Thread(target=self._run, name=f"zkms-sender-{topic}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, keys: Iterable[Key] = (), tags: Iterable[str] = (), *, everything: bool = False) -> Future[Receipt]:
        """Send these soon, after all that were added before; the Future gets the receipt when they are stored."""
        keys, tags = list(keys), list(tags)
        with self._state:
            if self._closed:
                raise Closed("the cache is closed")
            known = self._batch.add(keys, tags, everything)
            self._store.asked(len(keys) + len(tags) + everything, known)
            self._state.notify_all()
            return self._batch.receipt

    def close(self, timeout: float) -> bool:
        """Send what is waiting, for at most `timeout` seconds; False if some could not be sent."""
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
        """Send a batch; False if it must be sent again. No invalidation is dropped: others would serve old values."""
        try:
            receipt = self._bus.publish(
                self._topic, batch.invalidation(), to_self=False, if_nobody="drop", codec=CODEC
            )  # fmt: skip
        except (Closed, UsedAfterFork) as error:
            batch.settle(None, error)
            return True
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported, and sending goes on
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
    future.set_running_or_notify_cancel()  # it is shared: no caller may cancel it for the others
    return future
