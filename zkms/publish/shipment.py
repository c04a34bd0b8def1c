"""A transaction on its way: the frames that it stores, and what else it does.

A frame goes to one topic, in one entry for each lane that gets it, or a part of it. Mostly a transaction stores one
frame; one that was asked for by the user may store several, and ack what they came from.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import Future
from typing import Literal

from zkms.errors import MessageTooLarge
from zkms.message import frame as frames
from zkms.message.frame import Packed
from zkms.publish.audience import Members
from zkms.publish.receipt import Receipt
from zkms.publish.routing import QueueTarget
from zkms.tree.acl import acl
from zkms.tree.delayed_names import Delayed
from zkms.tree.entry import entry_prefix
from zkms.tree.paths import Tree, id_hash
from zkms.tree.records import IdRecord, encode
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Create, Operation, transaction_size

CARRIED_BYTES = 384
"""Bytes of a frame that its entries' names carry: their readers get it with the event, and need not ask for it."""
COPIED_BYTES = 8 * 1024
"""Bytes that a frame may cost in copies before it is stored once, for all queues to point to."""
LARGEST_KEPT = MAX_TRANSACTION * 3 // 4 - 16 * 1024
"""Bytes of a message that is not live: so many still fit into a transaction as a dead letter, in base 64."""
OWN_BYTES = 1024
"""What a transaction has besides: the producer's own operation."""
IfNobody = Literal["raise", "drop"]
"""What is done with a message that nobody subscribes to."""
Epochs = tuple[int, ...]
Picks = tuple[int, ...] | None


class OutgoingFrame:
    """A frame on its way to the subscriptions of a topic."""

    def __init__(self, topic: str, packed: list[Packed], *, without: str | None, drop: bool, deadline: float) -> None:
        self.topic = topic
        self.packed = packed
        self.without = without
        self.drop = drop
        self.deadline = deadline
        self.future: Future[Receipt] = Future()
        self.seq = 0
        self.size = sum(message.size for message in packed)
        self.at = 0.0
        self.targets: tuple[QueueTarget, ...] = ()
        self.skipped: dict[str, str] = {}
        self.duplicates: dict[int, str] = {}
        """Places of messages whose ids were stored before, and as what: nobody gets these again."""
        self.epochs: Epochs = ()
        self.shared = False
        """Whether the frame is stored once, as a body, and the queues get pointers to it."""
        self.delayed: Delayed | None = None
        """Where it waits, if it is to be published later: see delay.py."""
        self.place = 0
        """Of its first entry among the transaction's operations."""

    @property
    def ids(self) -> dict[int, str]:
        """Places of messages that were given an id, and are no duplicates as far as we know."""
        return {
            place: message.id
            for place, message in enumerate(self.packed)
            if message.id is not None and place not in self.duplicates
        }

    @property
    def last(self) -> int:
        """Number of the frame's last message."""
        return self.seq + len(self.packed) - 1

    def number(self, producer: str, seq: int) -> None:
        """Its messages' numbers begin with `seq`."""
        self.seq, self.at = seq, time.time()
        first: dict[str, int] = {}
        for place, given in self.ids.items():
            if first.setdefault(given, place) != place:  # twice in one frame
                self.duplicates[place] = f"{producer}:{seq + first[given]}"

    def operations(self, tree: Tree, producer: str, snapshot: Members, overhead: int) -> list[Operation]:
        """What stores it for its targets; the first is the check of the topic's epoch, then comes an entry for each.

        `overhead` is the session's for each operation, when it comes to the size.
        """
        self.epochs = epochs(snapshot)
        said = self.topic if snapshot.patterns else None  # a pattern's queue does not say which topic it was
        whole = self.encode(producer, None, said)
        self.size = len(whole)
        copies = sum(target.picks is None for target in self.targets)
        self.shared = (copies - 1) * len(whole) > COPIED_BYTES
        body = self.body(producer) if self.shared else None
        encoded: dict[tuple[Picks, bool] | Picks, tuple[str, bytes]] = {}
        operations: list[Operation] = [Check(tree.topic(self.topic), snapshot.epoch)]
        for target in self.targets:
            picks, readers = target.picks, target.member.acl
            # Names can be read by all producers, so they carry nothing that is for one subscriber alone.
            form = (picks, True) if readers else picks
            if form not in encoded:
                raw = whole if picks is None else self.encode(producer, picks, said)
                encoded[form] = self._entry(picks, raw, body if picks is None else None, carry=not readers)
            name, data = encoded[form]
            own = acl(readers) if readers else b""
            operations.append(Create(f"{tree.queue(*target.queue)}/{name}", data, False, True, own))
        if body is not None:
            operations.append(Create(tree.body(*body), whole, acl=self._body_acl()))
        operations += self.remember(tree, producer)
        operations.append(Check(tree.subscribers, snapshot.roll))
        operations += [Check(tree.topic(pattern), epoch) for pattern, epoch in snapshot.patterns]
        excess = transaction_size(operations, overhead) + OWN_BYTES - MAX_TRANSACTION
        if excess > 0:
            size, copied = len(whole), 1 if body else max(1, copies)
            raise MessageTooLarge(self.topic, size, max(0, size - excess // copied - 1), len(self.targets))
        largest = max(message.size for message in self.packed)
        if largest > LARGEST_KEPT and not all(target.member.live for target in self.targets):
            raise MessageTooLarge(self.topic, largest, LARGEST_KEPT, len(self.targets))
        return operations

    def _body_acl(self) -> bytes:
        """For all who are pointed to it."""
        if not self.targets[0].member.acl:  # then nobody has one
            return b""
        return acl(tuple(entry for target in self.targets if target.picks is None for entry in target.member.acl))

    def remember(self, tree: Tree, producer: str) -> list[Operation]:
        """What keeps its messages' ids from being stored again, and the log by which they are forgotten."""
        if not self.ids:
            return []
        hashes = " ".join(id_hash(given) for given in self.ids.values())
        return [
            *(
                Create(tree.id(self.topic, given), encode(IdRecord(producer, self.seq + place)))
                for place, given in self.ids.items()
            ),
            Create(tree.id_log(self.topic, self.at), hashes.encode(), sequence=True),
        ]

    def body(self, producer: str) -> tuple[str, int]:
        """Where its body is kept, if it has one."""
        return producer, self.seq

    def encode(self, producer: str, picks: Picks, topic: str | None) -> bytes:
        """The frame, or the part of it that some get."""
        messages = self.packed if picks is None else [self.packed[place] for place in picks]
        return frames.encode(producer, self.seq, self.at, messages, picks, topic)

    def _entry(
        self, picks: Picks, raw: bytes, body: tuple[str, int] | None, *, carry: bool = True
    ) -> tuple[str, bytes]:
        """The name of a queue entry but for its sequence, and its data."""
        messages = self.packed if picks is None else [self.packed[place] for place in picks]
        last = max(message.expires or math.inf for message in messages)
        carried = raw if carry and len(raw) <= CARRIED_BYTES and not body else None
        name = entry_prefix(
            len(messages),
            len(raw),
            body=body,
            carried=carried,
            priority=messages[0].priority,
            expires=0 if math.isinf(last) else math.ceil(last),
        )
        return name, b"" if body or carried else raw

    def queues(self, tree: Tree) -> dict[str, str]:
        """By the names that its receipt has for them: the queues that get it."""
        return {target.name_for(self.topic): tree.queue(*target.queue) for target in self.targets}


class Shipment:
    """A transaction: one number of the producer's for each of its messages, so it is stored once or not at all."""

    def __init__(self, frames: list[OutgoingFrame], deadline: float, also: list[Operation] | None = None) -> None:
        self.frames = frames
        self.deadline = deadline
        self.also = also or []
        """What it does besides, last."""
        self.last = 0
        """The producer's number after it."""
        self.settled = True
        self.error: BaseException | None = None
        self.stored: Future[None] = Future()
        """Done when it is stored; has the reason if it is not."""

    @property
    def size(self) -> int:
        """Bytes, about."""
        return sum(frame.size for frame in self.frames)

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        return bool(self.frames) and all(frame.future.cancelled() for frame in self.frames)

    def fail(self, error: BaseException) -> None:
        """Tell whoever waits that it is not stored."""
        for frame in self.frames:
            if frame.future.set_running_or_notify_cancel():
                frame.future.set_exception(error)
        self.stored.set_exception(error)


def epochs(snapshot: Members) -> Epochs:
    """All that tells this snapshot from an older one, but for the list of patterns."""
    return snapshot.epoch, *(epoch for _, epoch in snapshot.patterns)
