"""An entry whose messages are acked one by one: which of them are in flight, failed, or done with."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, Protocol

from zkms.consume.ledger_commits import Ownership, Unsure
from zkms.context import Context
from zkms.deliver.inbox import Fetched
from zkms.errors import AlreadyAcked, ConnectionLost, InvalidArgument, LostOwnership, ZkmsError
from zkms.message.frame import Frame
from zkms.message.message import Message
from zkms.tree.records import Part, Try
from zkms.zookeeper.operations import Operation

LATE = "not done within"
RETURNED = "it was given back by nak()"
OVERDUE = "its time to run was over, and it is delivered again"


class EntryDispatcher(Protocol):
    """What an entry needs of the one that delivers its messages."""

    topic: str
    owner: Context
    patience: float
    lock: threading.Condition
    ownership: Ownership
    ttr: float | None

    def acked(self, entry: EntryState, message: Message, *, wait: bool) -> Future[None] | None: ...

    def failed(self, entry: EntryState, message: Message, error: str, delay: float | None) -> Future[None] | None: ...

    def rejected(self, entry: EntryState, message: Message, reason: str) -> Future[None] | None: ...

    def stored(self, entry: EntryState, places: int, zxid: int | None) -> None: ...


class EntryState:
    """An entry of a durable subscription or a group. Guarded by its dispatcher's lock."""

    __slots__ = (
        "_dead_letters",
        "_known",
        "_sent",
        "count",
        "deliveries",
        "discarded",
        "dispatcher",
        "done",
        "extras",
        "frame",
        "latest",
        "noted",
        "numbers",
        "path",
        "plain",
        "priority",
        "producer",
        "published_at",
        "replies",
        "seq",
        "sequence",
        "size",
        "topic",
        "touched",
        "tries",
    )

    def __init__(self, dispatcher: EntryDispatcher, frame: Frame, fetched: Fetched, part: Part | None) -> None:
        self.dispatcher = dispatcher
        self.frame = frame
        self.topic = dispatcher.topic if frame.topic is None else frame.topic
        self.producer = frame.producer
        self.seq = frame.seq
        self.published_at = frame.published_at
        self.count = len(frame.data)
        self.extras = frame.extras
        self.numbers = frame.numbers
        self.replies: Any = None
        """Where answers to requests are sent from."""
        self.path = fetched.path
        self.sequence = fetched.entry.sequence
        self.size = len(fetched.raw)
        self.priority = fetched.entry.priority
        self.done = 0 if part is None else mask_of(part, self.count)
        """A bit for each message that is done with."""
        self.tries: dict[int, Try] = {} if part is None else dict(part.tries)
        """What the ledger knows of messages that were delivered before."""
        self.deliveries: dict[int, int] = {}
        """How often messages were delivered, this time included; once, if nothing is said."""
        self.latest: dict[int, Message] = {}
        """Messages that were delivered again: only the latest counts."""
        self.touched: dict[int, float] = {}
        """Until when messages have time to run, where that was prolonged."""
        self.noted = 0
        """A bit for each message that was noted in the ledger as delivered before it was."""
        expires = frame.extras is not None and any(extra is not None and extra.expires for extra in frame.extras)
        self.plain = part is None and not expires
        """Whether nothing has to be looked at before a message is delivered."""
        self._dead_letters: list[tuple[int, Operation]] = []
        self.discarded = 0
        """A bit for each message that is done with without an ack: expired, or a dead letter."""
        self._sent = self._known = self.done
        """What the last snapshot had as done with, and what is known to be stored of it."""

    # -- for the ledger ------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Whether all of its messages are done with."""
        return self.done == (1 << self.count) - 1

    def snapshot(self) -> tuple[Part | None, list[Operation]]:
        """What the ledger has to say of this entry, None if all is done with; and dead letters to create, each once."""
        done = self._sent = self.done
        letters = [operation for index, operation in self._dead_letters if done >> index & 1]
        self._dead_letters = [(index, operation) for index, operation in self._dead_letters if not done >> index & 1]
        if done == (1 << self.count) - 1:
            return None, letters
        first = ((~done & (done + 1)).bit_length() or 1) - 1  # messages below this are done with
        more = done >> first
        tries = {index: tried for index, tried in list(self.tries.items()) if not done >> index & 1}
        return Part(first, f"{more:x}" if more else "", tries), letters

    def committed(self, zxid: int | None) -> None:
        """What the last snapshot said is stored, by this transaction if that is known."""
        new, self._known = self._sent & ~self._known & ~self.discarded, self._sent
        if new:
            self.dispatcher.stored(self, new, zxid)

    def add_dead_letter(self, index: int, operation: Operation) -> None:
        """Create a dead letter in the commit in which the message is done with."""
        self._dead_letters.append((index, operation))

    # -- for a message -------------------------------------------------------------------------------------------

    def attempts(self, index: int) -> int:
        """How often a message was delivered."""
        return self.deliveries.get(index, 1)

    def ack(self, message: Message) -> None:
        """Note that a message is done with, and return when that is stored."""
        self.wait_until_stored(self.start_ack(message), message)

    def nak(self, message: Message, delay: float | None, error: str | None) -> None:
        """Deliver a message again, or make it a dead letter if that was its last attempt."""
        self.wait_until_stored(self.start_nak(message, delay, error), message)

    def touch(self, message: Message) -> None:
        """Let the time to run of a message begin anew."""
        with self.dispatcher.lock:
            self.check(message)
            if self.dispatcher.ttr is not None:
                self.touched[message.index] = time.monotonic() + self.dispatcher.ttr

    def reject(self, message: Message, reason: str) -> None:
        """Make a message a dead letter."""
        self.wait_until_stored(self.start_reject(message, reason), message)

    def wait_until_stored(self, stored: Future[None] | None, message: Message) -> None:
        """Wait until what was done with a message is stored, or raise `ConnectionLost` or `LostOwnership`."""
        if stored is None:
            return
        try:
            stored.result(self.dispatcher.patience)
        except TimeoutError as error:
            raise ConnectionLost("ZooKeeper did not answer; this is kept, and sent when it is back") from error
        except ZkmsError as error:
            raise LostOwnership(message.id, str(error), outcome_unknown=isinstance(error, Unsure)) from error

    # The same without waiting: when the result is done, it is stored. None if there is nothing to wait for.

    def start_ack(self, message: Message, *, wait: bool = True) -> Future[None] | None:
        """Note that a message is done with; with `wait=False` that is stored soon, and there is no Future."""
        with self.dispatcher.lock:  # it is committed before anybody sees that nothing is in flight
            self.check(message)
            self.finish((message.index,))
            return self.dispatcher.acked(self, message, wait=wait)

    def start_nak(self, message: Message, delay: float | None, error: str | None) -> Future[None] | None:
        """Deliver a message again, or make it a dead letter if that was its last attempt."""
        if delay is not None and (not isinstance(delay, (int, float)) or not 0 <= delay < math.inf):
            raise InvalidArgument(f"delay must be a number of seconds that is not negative, not {delay!r:.60}")
        if error is not None and not isinstance(error, str):
            raise InvalidArgument(f"error must be a str, not {error!r:.60}")
        with self.dispatcher.lock:
            self.check(message)
            return self.dispatcher.failed(self, message, error or "nak", delay)

    def start_reject(self, message: Message, reason: str) -> Future[None] | None:
        """Make a message a dead letter."""
        if not isinstance(reason, str) or not reason:
            raise InvalidArgument(f"reject: give the reason as a str, not {reason!r:.60}")
        with self.dispatcher.lock:
            self.check(message)
            return self.dispatcher.rejected(self, message, f"rejected: {reason}")

    def check(self, message: Message) -> None:
        """`AlreadyAcked` or `LostOwnership`, unless the message is in flight."""
        index = message.index
        if self.done >> index & 1:
            raise AlreadyAcked(message.id)
        lost = self.dispatcher.ownership.lost
        if lost is not None:
            raise LostOwnership(message.id, lost)
        if self.latest.get(index, message) is not message:
            raise LostOwnership(message.id, OVERDUE)
        if self.tries and not self.is_in_flight(message):
            raise LostOwnership(message.id, OVERDUE if self.tries[index].error.startswith(LATE) else RETURNED)

    def check_all(self, messages: list[Message]) -> None:
        """`check` for many messages of this entry; none of them may be there twice."""
        seen = self.done
        careful = bool(self.latest or self.tries) or self.dispatcher.ownership.lost is not None
        for message in messages:
            bit = 1 << message.index
            if seen & bit:
                raise AlreadyAcked(message.id)
            seen |= bit
            if careful:
                self.check(message)

    def is_ahead(self, index: int) -> bool:
        """Whether a message was noted in the ledger by us, and not delivered yet."""
        return bool(self.noted >> index & 1) and index not in self.deliveries

    def is_in_flight(self, message: Message) -> bool:
        """Whether a message is in flight."""
        index = message.index
        if self.done >> index & 1 or self.latest.get(index, message) is not message:
            return False
        tried = self.tries.get(index)  # a time at which it is due again says that it failed
        return tried is None or not tried.due or self.deliveries.get(index, 1) > tried.attempts

    def expires(self, index: int) -> float:
        """When a message expires; 0 for never."""
        extra = None if self.extras is None else self.extras[index]
        return 0.0 if extra is None else extra.expires

    def is_expired(self, index: int) -> bool:
        """Whether a message must not be delivered any more."""
        expires = self.expires(index)
        return bool(expires) and time.time() >= expires

    def finish(self, indexes: Iterable[int]) -> None:
        """Note that these messages are done with."""
        done = self.done
        for index in indexes:
            done |= 1 << index
            if self.tries or self.latest or self.touched:
                self.tries.pop(index, None)
                self.latest.pop(index, None)
                self.touched.pop(index, None)
        self.done = done


def mask_of(part: Part, count: int) -> int:
    """A bit for each of an entry's `count` messages that is done with; whatever the ledger says, not for more."""
    done, whole = min(part.done, count), (1 << count) - 1
    try:
        return ((1 << done) - 1 | int(part.more or "0", 16) << done) & whole
    except ValueError:
        return (1 << done) - 1
