"""A publishing transaction: the frames that it stores, and its other operations.

A frame goes to one topic. Each queue that gets it, or a part of it, gets one entry. Most transactions store one frame;
a user's `bus.transaction()` may store several, and ack the messages that they came from.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import Future

from zkms.errors import MessageTooLarge
from zkms.message import frame as frames
from zkms.message.frame import Packed
from zkms.publish.audience import Members, QueueTarget
from zkms.publish.receipt import Receipt
from zkms.tree.acl import acl
from zkms.tree.delayed_names import Delayed
from zkms.tree.entry import entry_prefix
from zkms.tree.paths import Tree, id_hash
from zkms.tree.records import IdRecord, encode
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Create, Operation, transaction_size

CARRIED_BYTES = 384
"""The largest frame that is stored in its entries' names: readers get it with the watch event, without a read."""
COPIED_BYTES = 8 * 1024
"""The most bytes of copies of a frame: beyond that it is stored once, as a body that all queues point to."""
LARGEST_KEPT = MAX_TRANSACTION * 3 // 4 - 16 * 1024
"""The largest message for durable subscriptions and groups: it must fit into a transaction as a dead letter, in base
64."""
OWN_BYTES = 1024
"""Bytes of the producer's operation in a transaction."""
MOST_BYTES = 3
"""Bytes of one character of a path, in UTF-8: ZooKeeper takes no longer ones."""
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
        """Indexes of messages whose ids were stored before, and the ids of the originals: they are not sent again."""
        self.epochs: Epochs = ()
        self.shared = False
        """Whether the frame is stored once, as a body, and the queues get pointers to it."""
        self.delayed: Delayed | None = None
        """Where it waits, if it is to be published later: see delayed.py."""
        self.place = 0
        """Index of its first entry among the transaction's operations."""

    @property
    def ids(self) -> dict[int, str]:
        """The ids that messages were given, by index, without known duplicates."""
        return {
            place: message.id
            for place, message in enumerate(self.packed)
            if message.id is not None and place not in self.duplicates
        }

    def number(self, producer: str, seq: int) -> int:
        """Number its messages from `seq` on, and return the last number."""
        self.seq, self.at = seq, time.time()
        first: dict[str, int] = {}
        for place, given in self.ids.items():
            if first.setdefault(given, place) != place:  # twice in one frame
                self.duplicates[place] = f"{producer}:{seq + first[given]}"
        return seq + len(self.packed) - 1

    def operations(self, tree: Tree, producer: str, snapshot: Members, overhead: int) -> list[Operation]:
        """Return the operations that store it: first the check of the topic's epoch, then one entry for each target.

        `overhead` is the number of bytes that the session adds to each operation.
        """
        self.epochs = epochs(snapshot)
        said = self.topic if snapshot.patterns else None  # a pattern's queue does not name the topic
        whole = self.encode(producer, None, said)
        self.size = len(whole)
        copies = sum(target.picks is None for target in self.targets)
        self.shared = (copies - 1) * len(whole) > COPIED_BYTES
        body = self.body(producer) if self.shared else None
        encoded: dict[tuple[Picks, bool] | Picks, tuple[str, bytes]] = {}
        checks = snapshot.checks = snapshot.checks or self._checks(tree, snapshot)
        paths = snapshot.paths
        operations: list[Operation] = [checks[0]]
        for target in self.targets:
            picks, readers = target.picks, target.member.acl
            # All producers can read names, so a frame for one subscriber alone is not put into the name.
            form = (picks, True) if readers else picks
            if form not in encoded:
                raw = whole if picks is None else self.encode(producer, picks, said)
                encoded[form] = self._entry(picks, raw, body if picks is None else None, carry=not readers)
            name, data = encoded[form]
            own = acl(readers) if readers else b""
            queue = paths.get(target.queue) or paths.setdefault(target.queue, tree.queue(*target.queue))
            operations.append(Create(f"{queue}/{name}", data, False, True, own))
        if body is not None:
            operations.append(Create(tree.body(*body), whole, acl=self._body_acl()))
        operations += self.remember(tree, producer)
        operations += checks[1:]
        excess = self._excess(operations, overhead)
        if excess > 0:
            size, copied = len(whole), 1 if body else max(1, copies)
            raise MessageTooLarge(self.topic, size, max(0, size - excess // copied - 1), len(self.targets))
        largest = max(message.size for message in self.packed)
        if largest > LARGEST_KEPT and not all(target.member.live for target in self.targets):
            raise MessageTooLarge(self.topic, largest, LARGEST_KEPT, len(self.targets))
        return operations

    def _checks(self, tree: Tree, snapshot: Members) -> tuple[Check, ...]:
        """Check the snapshot's epochs: the topic's, the list of patterns', and each pattern's."""
        return (
            Check(tree.topic(self.topic), snapshot.epoch),
            Check(tree.subscribers, snapshot.roll),
            *(Check(tree.topic(pattern), epoch) for pattern, epoch in snapshot.patterns),
        )

    def _excess(self, operations: list[Operation], overhead: int) -> int:
        """Return by how many bytes a transaction is too large, 0 or less if it fits; small ones are only estimated."""
        if not self.ids and all(target.picks is None and not target.member.acl for target in self.targets):
            longest = max(len(operation.path) for operation in operations)
            if len(operations) * (MOST_BYTES * longest + self.size + overhead + OWN_BYTES) <= MAX_TRANSACTION:
                return 0
        return transaction_size(operations, overhead) + OWN_BYTES - MAX_TRANSACTION

    def _body_acl(self) -> bytes:
        """Return the ACL that lets every target with a pointer read the body."""
        if not self.targets[0].member.acl:  # then no target has one
            return b""
        return acl(tuple(entry for target in self.targets if target.picks is None for entry in target.member.acl))

    def remember(self, tree: Tree, producer: str) -> list[Operation]:
        """Return the operations that store its messages' ids, and the log by which the cleaner forgets them."""
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
        """Producer and number of its body, if it has one."""
        return producer, self.seq

    def encode(self, producer: str, picks: Picks, topic: str | None) -> bytes:
        """Encode the frame, or the messages at `picks` of it."""
        messages = self.packed if picks is None else [self.packed[place] for place in picks]
        return frames.encode(producer, self.seq, self.at, messages, picks, topic)

    def _entry(
        self, picks: Picks, raw: bytes, body: tuple[str, int] | None, *, carry: bool = True
    ) -> tuple[str, bytes]:
        """Return the name of a queue entry without its sequence, and its data."""
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
        """The paths of the queues that get it, by their names in the receipt."""
        return {target.name_for(self.topic): tree.queue(*target.queue) for target in self.targets}


class Shipment:
    """A transaction; each of its messages has a number of the producer, so it is stored once or not at all."""

    def __init__(self, frames: list[OutgoingFrame], deadline: float, also: list[Operation] | None = None) -> None:
        self.frames = frames
        self.deadline = deadline
        self.also = also or []
        """Other operations, which come last."""
        self.last = 0
        """The producer's sequence number when it is stored."""
        self.settled = True
        self.error: BaseException | None = None
        self.stored: Future[None] = Future()
        """Done when it is stored; has the error if it is not."""

    @classmethod
    def of_one(cls, topic: str, packed: list[Packed], without: str | None, drop: bool, deadline: float) -> Shipment:
        """Return a transaction that only stores one frame."""
        return cls([OutgoingFrame(topic, packed, without=without, drop=drop, deadline=deadline)], deadline)

    @property
    def size(self) -> int:
        """Its approximate size in bytes."""
        return sum(frame.size for frame in self.frames)

    @property
    def cancelled(self) -> bool:
        """Whether all its callers have stopped waiting."""
        return bool(self.frames) and all(frame.future.cancelled() for frame in self.frames)

    def fail(self, error: BaseException) -> None:
        """Pass the error to its callers: it is not stored."""
        for frame in self.frames:
            if frame.future.set_running_or_notify_cancel():
                frame.future.set_exception(error)
        self.stored.set_exception(error)


def epochs(snapshot: Members) -> Epochs:
    """Return all epochs of a snapshot: the topic's, and each pattern's."""
    return snapshot.epoch, *(epoch for _, epoch in snapshot.patterns)
