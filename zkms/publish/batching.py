"""Many threads that publish at once share transactions.

A publish on an idle bus goes out at once. While two such transactions are under way, what comes to the same topic is
gathered; the thread that began the batch sends it as soon as one of them has been answered, and the others wait for the
same answer. Those who shared a transaction are answered together and come back together: the next batch waits for as
many, but never longer than a quarter of what that transaction took; who comes later than that finds an idle bus. So the
busier the bus, the more messages a transaction carries. What publish_many() and bus.publisher() have under way does not
count: nobody waits for it here.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

from zkms.errors import ConnectionLost, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.pipeline import Pipeline
from zkms.publish.receipt import Receipt

UNDER_WAY = 2
"""Transactions under way before publishes are gathered."""
MAX_MESSAGES = 256
MAX_BYTES = 64 * 1024
"""What a batch carries at the most; a message that is larger goes alone."""
LONGEST_WAIT = 0.05
"""Seconds to wait for company at the very most."""

_Key = tuple[str, str | None, bool, str | None, int]


class Batch:
    """Messages that wait for the same transaction."""

    def __init__(self, packed: Packed, deadline: float) -> None:
        self.packed = [packed]
        self.size = packed.size
        self.deadline = deadline
        self.future: Future[Receipt] = Future()
        self.future.set_running_or_notify_cancel()  # one who has waited long enough must not cancel it for the others

    def take(self, packed: Packed, most: int, deadline: float) -> int | None:
        """The message's place in the batch, or None if there is no room."""
        if len(self.packed) >= min(most, MAX_MESSAGES) or self.size + packed.size > MAX_BYTES:
            return None
        self.packed.append(packed)
        self.size += packed.size
        self.deadline = max(self.deadline, deadline)
        return len(self.packed) - 1


class Batching:
    """Gathers single messages for the publisher. Thread-safe."""

    def __init__(self, publisher: Pipeline) -> None:
        self._publisher = publisher
        self._open: dict[_Key, Batch] = {}
        self._lock = threading.Condition()
        self._under_way = 0
        """Transactions of ours that are not answered yet."""
        self._crowd = 1
        """How many shared the transaction that was answered last."""
        self._patience = 0.0
        """Seconds that are worth waiting for as many to come back."""
        self._answered_at = 0.0

    def send(
        self, topic: str, packed: Packed, *, most: int, without: str | None, drop: bool, deadline: float
    ) -> tuple[Future[Receipt], int]:
        """Send a message, alone or with `most` others: the receipt to come, and the message's place in it."""
        if packed.size > MAX_BYTES:
            return self._publisher.send(topic, [packed], without=without, drop=drop, deadline=deadline), 0
        key = topic, without, drop, packed.codec, packed.priority
        with self._lock:
            if not self._under_way and not self._open and time.monotonic() - self._answered_at > self._patience:
                self._crowd = 1  # nobody has come back
            batch = self._open.get(key)
            if batch is not None and (place := batch.take(packed, most, deadline)) is not None:
                if len(batch.packed) >= self._crowd:
                    self._lock.notify_all()
                return batch.future, place
            mine = Batch(packed, deadline)
            alone = batch is None and self._crowd == 1 and self._under_way < UNDER_WAY
            if alone:
                self._under_way += 1
            else:
                self._open[key] = mine
        try:
            if not alone:
                self._gather(mine, min(most, MAX_MESSAGES), deadline)
            self._shut(key, mine)
            began = time.monotonic()
            sent = self._publisher.send(topic, mine.packed, without=without, drop=drop, deadline=mine.deadline)
        except BaseException as error:
            self._shut(key, mine)
            self._no_more_under_way()
            unsent = ConnectionLost(f"not sent: {error!r}", outcome_unknown=False)
            mine.future.set_exception(error if isinstance(error, ZkmsError) else unsent)
            raise
        sent.add_done_callback(lambda answer: self._answered(answer, mine, began))
        return mine.future, 0

    def _gather(self, batch: Batch, most: int, deadline: float) -> None:
        """Wait for those who shared the last transaction, as long as that is worth it; then until it may be sent."""
        with self._lock:
            try:
                if self._patience > 0:
                    self._lock.wait_for(lambda: len(batch.packed) >= min(self._crowd, most), self._patience)
                self._lock.wait_for(lambda: self._under_way < UNDER_WAY, max(0.0, deadline - time.monotonic()))
            finally:
                self._under_way += 1

    def _answered(self, answer: Future[Receipt], batch: Batch, began: float) -> None:
        with self._lock:
            self._answered_at = time.monotonic()
            self._crowd, self._patience = len(batch.packed), min((self._answered_at - began) / 4, LONGEST_WAIT)
        self._no_more_under_way()
        _pass_on(answer, batch.future)

    def _no_more_under_way(self) -> None:
        with self._lock:
            self._under_way -= 1
            self._lock.notify_all()

    def _shut(self, key: _Key, batch: Batch) -> None:
        """From here on nobody joins."""
        with self._lock:
            if self._open.get(key) is batch:
                del self._open[key]


def _pass_on(answer: Future[Receipt], future: Future[Receipt]) -> None:
    error = answer.exception()
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(answer.result())
