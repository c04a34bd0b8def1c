"""Group commit: messages that are published at the same time share transactions.

A publish on an idle bus goes out at once. While two such transactions are under way, what comes of the same kind is
gathered, and goes as soon as one of them has been answered. Those who shared a transaction are answered together and
come back together: the next batch of threads waits for as many, but never longer than a quarter of what that
transaction took; who comes later than that finds an idle bus. So the busier the bus, the more messages a transaction
carries. What publish_many() and bus.publisher() have under way does not count: nobody waits for it here.

`GroupCommit` decides and never waits. `Batching` lets threads wait; zkms.aio has an outbox that lets tasks wait.
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

UNDER_WAY = 2
"""Transactions under way before publishes are gathered."""
MAX_MESSAGES = 256
MAX_BYTES = 64 * 1024
"""What a batch carries at the most; a message that is larger goes alone."""
LONGEST_WAIT = 0.05
"""Seconds to wait for company at the very most."""


@dataclass(slots=True, eq=False, kw_only=True)
class Batch(Packer):
    """Messages of one kind that wait for the same transaction."""

    kind: Kind
    deadline: float
    """The latest of its messages'."""
    begun: float
    sent: float = 0.0


B = TypeVar("B", bound=Batch)
Send = Callable[[Kind, list[Packed], float], "Future[Receipt]"]
"""Sends a frame, and says by when."""


class GroupCommit(Generic[B]):
    """Decides which messages share a transaction, and when it may go. Never waits; not thread-safe."""

    def __init__(self, make: Callable[..., B]) -> None:
        self._make = make
        self._open: dict[Kind, B] = {}
        """By kind: the batch that takes more."""
        self.waiting: deque[B] = deque()
        """Batches that are not sent, in the order in which they began."""
        self.under_way = 0
        """Transactions that are not answered."""
        self._crowd = 1
        """How many shared the transaction that was answered last."""
        self._patience = 0.0
        """Seconds that are worth waiting for as many to come back."""
        self._answered_at = 0.0

    def add(self, kind: Kind, message: Packed, deadline: float, now: float, most: int = MAX_MESSAGES) -> B:
        """Put a message into a batch, as its last one; a batch of which it is the only one has just begun."""
        if not self.under_way and not self.waiting and now - self._answered_at > self._patience:
            self._crowd = 1  # nobody has come back
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
        """Seconds that a batch has to wait: 0 if it may go now, infinity if until a transaction is answered."""
        if len(batch.packed) < min(self._crowd, batch.budget[1]) and (left := batch.begun + self._patience - now) > 0:
            return left
        return 0.0 if self.under_way < UNDER_WAY else math.inf

    def start(self, batch: B, now: float) -> None:
        """The batch is sent: from here on nobody joins."""
        self.waiting.remove(batch)
        if self._open.get(batch.kind) is batch:
            del self._open[batch.kind]
        batch.sent = now
        self.under_way += 1

    def answered(self, batch: B, now: float) -> None:
        """Its transaction was answered, so as many may come back soon: worth waiting for."""
        self.ended()
        self._answered_at = now
        self._crowd, self._patience = len(batch.packed), min((now - batch.sent) / 4, LONGEST_WAIT)

    def ended(self) -> None:
        """A transaction is not under way any more."""
        self.under_way -= 1


@dataclass(slots=True, eq=False, kw_only=True)
class SharedBatch(Batch):
    """A batch for whose answer several threads wait."""

    future: Future[Receipt] = field(default_factory=Future)


class Batching:
    """Group commit for threads: the one that begins a batch sends it, the others wait for the same answer."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._commit = GroupCommit(SharedBatch)
        self._changed = threading.Condition()

    def send(self, kind: Kind, message: Packed, most: int, deadline: float) -> tuple[Future[Receipt], int]:
        """Send a message, alone or with `most` others: the receipt to come, and the message's place in it."""
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
            # One who has waited long enough must not cancel it for the others.
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
        """Wait until the batch may go, or the message that began it has no time left."""
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
