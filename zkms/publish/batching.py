"""Group commit: messages that are published at the same time share transactions.

A publish on an idle bus is sent at once. While two such transactions are in flight, messages of the same kind are
gathered into a batch, which is sent when one of the two is answered. Callers that shared a transaction are answered
together and often publish again together: so the next batch waits for as many messages, but at most for a quarter of
the time which that transaction took. The busier the bus, the more messages a transaction carries. Transactions of
publish_many() and bus.publisher() do not count.

`GroupCommit` decides and never waits. `Batching` makes threads wait; the outbox of zkms.aio makes tasks wait.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from zkms.errors import ConnectionLost, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.options import Kind
from zkms.publish.packer import Packer
from zkms.publish.receipt import Receipt

MAX_IN_FLIGHT = 2
"""Transactions in flight beyond which publishes are gathered."""
MAX_MESSAGES = 256
MAX_BYTES = 64 * 1024
"""The most bytes of a batch; a larger message is sent alone."""
LONGEST_WAIT = 0.05
"""The most seconds that a batch waits for more messages."""


@dataclass(slots=True, eq=False, kw_only=True)
class Batch(Packer):
    """Messages of one kind that wait for the same transaction."""

    kind: Kind
    deadline: float
    """The latest of its messages' deadlines."""
    begun: float
    sent: float = 0.0


B = TypeVar("B", bound=Batch)
Send = Callable[[Kind, list[Packed], float], "Future[Receipt]"]
"""Sends a frame by a deadline."""


class GroupCommit(Generic[B]):
    """Decides which messages share a transaction, and when to send it. Never waits; not thread-safe."""

    def __init__(self, make: Callable[..., B]) -> None:
        self._make = make
        self._open: dict[Kind, B] = {}
        """By kind: the batch that takes more messages."""
        self.waiting: deque[B] = deque()
        """Batches that are not sent yet, oldest first."""
        self.in_flight = 0
        """Transactions that are not answered yet."""
        self._crowd = 1
        """How many messages shared the transaction that was answered last."""
        self._patience = 0.0
        """Seconds to wait for as many messages again."""
        self._answered_at = 0.0

    def add(self, kind: Kind, message: Packed, deadline: float, now: float, most: int = MAX_MESSAGES) -> B:
        """Append a message to a batch and return that; a new batch has only this message."""
        if not self.in_flight and not self.waiting and now - self._answered_at > self._patience:
            self._crowd = 1  # no caller has published again
        budget = MAX_BYTES, min(most, MAX_MESSAGES)
        batch = self._open.get(kind)
        if batch is not None:
            batch.budget = budget
            if batch.take(message):
                batch.deadline = max(batch.deadline, deadline)
                return batch
        batch = self._make(budget, [message], message.size, kind=kind, deadline=deadline, begun=now)
        self._open[kind] = batch
        self.waiting.append(batch)
        return batch

    def wait(self, batch: B, now: float) -> float:
        """Return the seconds that a batch has to wait: 0 to send it now, infinity until a transaction is answered."""
        if len(batch.packed) < min(self._crowd, batch.budget[1]) and (left := batch.begun + self._patience - now) > 0:
            return left
        return 0.0 if self.in_flight < MAX_IN_FLIGHT else math.inf

    def start(self, batch: B, now: float) -> None:
        """Mark a batch as sent: it takes no more messages."""
        self.waiting.remove(batch)
        if self._open.get(batch.kind) is batch:
            del self._open[batch.kind]
        batch.sent = now
        self.in_flight += 1

    def answered(self, batch: B, now: float) -> None:
        """Mark a batch as answered, and expect as many messages again soon."""
        self.ended()
        self._answered_at = now
        self._crowd, self._patience = len(batch.packed), min((now - batch.sent) / 4, LONGEST_WAIT)

    def ended(self) -> None:
        """Count a transaction as no longer in flight."""
        self.in_flight -= 1


@dataclass(slots=True, eq=False, kw_only=True)
class SharedBatch(Batch):
    """A batch with one answer for several waiting threads."""

    future: Future[Receipt] = field(default_factory=Future)


class Batching:
    """Group commit for threads: the one that starts a batch sends it, the others wait for the same answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._commit = GroupCommit(SharedBatch)
        self._changed = threading.Condition()

    def send(self, kind: Kind, message: Packed, most: int, deadline: float) -> tuple[Future[Receipt], int]:
        """Send a message, in a batch of at most `most`; return the batch's receipt to come and the message's index."""
        if message.size > MAX_BYTES:
            return self._send(kind, [message], deadline), 0
        with self._changed:
            now = time.monotonic()
            batch = self._commit.add(kind, message, deadline, now, most)
            at_once = self._commit.wait(batch, now) == 0
            if place := len(batch.packed) - 1:
                if at_once:
                    self._changed.notify_all()
                return batch.future, place
            # A caller whose timeout is over must not cancel it for the others.
            batch.future.set_running_or_notify_cancel()
            if at_once:
                self._commit.start(batch, now)
        try:
            if not at_once:
                self._gather(batch, deadline)
            sent = self._send(kind, batch.packed, batch.deadline)
        except BaseException as error:
            with self._changed:
                self._commit.ended()
                self._changed.notify_all()
            unsent = ConnectionLost(f"not sent: {error!r}", outcome_unknown=False)
            batch.future.set_exception(error if isinstance(error, ZkmsError) else unsent)
            raise
        sent.add_done_callback(lambda answer: self._answered(answer, batch))
        return batch.future, 0

    def _gather(self, batch: SharedBatch, deadline: float) -> None:
        """Wait until the batch may be sent, or until the deadline of its first message."""
        with self._changed:
            try:
                while (now := time.monotonic()) < deadline and (wait := self._commit.wait(batch, now)):
                    self._changed.wait(min(wait, deadline - now))
            finally:
                self._commit.start(batch, time.monotonic())

    def _answered(self, answer: Future[Receipt], batch: SharedBatch) -> None:
        with self._changed:
            self._commit.answered(batch, time.monotonic())
            self._changed.notify_all()
        error = answer.exception()
        if error is not None:
            batch.future.set_exception(error)
        else:
            batch.future.set_result(answer.result())
