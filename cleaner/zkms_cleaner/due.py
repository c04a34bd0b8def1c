"""Moves delayed frames that are due into the queues, each exactly once, many in a transaction.

The transaction checks that we lead and that nobody has subscribed or unsubscribed since we looked, creates the entries
in the queues as a publisher would, and deletes the delayed frames. So a frame that was moved cannot be moved again, by
us after a lost reply or by a leader that comes after us: there is nothing left to delete.

Who gets a frame is decided here. Where nobody subscribes, its messages become dead letters of `nobody`. The limits of a
queue do not apply to what is due, since no publisher is there to be told; a queue with a full flag is skipped.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from zkms.deliver.quarantine import set_aside
from zkms.errors import (
    BadVersion,
    CannotDecode,
    ConnectionLost,
    MessageTooLarge,
    NodeExists,
    NodeMissing,
    NotEmpty,
    StoreError,
    TransactionFailed,
)
from zkms.message import frame as frames
from zkms.message.frame import Frame, Packed
from zkms.publish.audience import Audience, Members, route
from zkms.publish.shipment import Epochs, OutgoingFrame, Picks, epochs
from zkms.trail.hooks import Recorder
from zkms.tree.delayed_names import NOBODY, Delayed
from zkms.tree.paths import Tree
from zkms.tree.records import DeadLetter, Moved, encode
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Create, Delete, Operation, SetData, transaction_size
from zkms.zookeeper.recipes import absent, create_if_missing, in_chunks, read_many
from zkms.zookeeper.session import Session
from zkms_cleaner.election import Lead

log = logging.getLogger("zkms.cleaner")
BODIES = "~due"
"""The producer of bodies of frames that were moved: no client has this name, so the cleaner frees them."""
READ_AT_ONCE = 256
READ_BYTES = 4 * 1024 * 1024
BATCH = 256
BATCH_OPERATIONS = 1000
BATCH_BYTES = MAX_TRANSACTION // 2
ATTEMPTS = 50
"""Times that a transaction is refused before its frames are put off."""


class Due(OutgoingFrame):
    """A delayed frame that is due, on its way to the subscriptions of its topic."""

    def __init__(self, item: Delayed, raw: bytes, frame: Frame) -> None:
        super().__init__(item.topic, _repacked(frame, item.priority), without=None, drop=item.drop, deadline=0.0)
        self.item = item
        self.seq, self.at = frame.seq, frame.published_at
        self.left: tuple[int, ...] = ()
        """Places of the messages that have not expired."""
        self.dead = ""
        """Why its messages are dead letters, if they are."""
        self.over = False
        """Whether somebody else has moved it."""
        self._frame = frame
        self._raw = raw
        self._body = secrets.randbits(59)

    @property
    def numbers(self) -> Sequence[int]:
        """The number of each message, less `seq`."""
        return self._frame.numbers or range(len(self.packed))

    def body(self, producer: str) -> tuple[str, int]:
        """Where its body is kept, if it has one: not among those of its producer, which would not know of it."""
        del producer
        return BODIES, self._body

    def encode(self, producer: str, picks: Picks, topic: str | None) -> bytes:
        """The frame, or those of its messages that are picked; it always says its topic."""
        del topic
        if picks is None:
            return self._raw
        messages, numbers = [self.packed[place] for place in picks], [self.numbers[place] for place in picks]
        return frames.encode(producer, self.seq, self.at, messages, numbers, self.topic)

    def dead_letters(self, tree: Tree, now: float) -> list[Operation]:
        """What creates a dead letter for each message."""
        records = [
            encode(DeadLetter(self.encode(self.item.producer, (place,), None), self.dead, now)) for place in self.left
        ]
        return [Create(tree.dead_letter(NOBODY, self.topic, len(record)), record, sequence=True) for record in records]


class Mover:
    """Moves frames that are due into the queues of who subscribes to their topics. Used by one thread."""

    def __init__(
        self, session: Session, tree: Tree, *, trail: Recorder | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.moved = 0
        """Frames moved so far."""
        self._session = session
        self._tree = tree
        self._trail = trail or Recorder()
        self._clock = clock
        self._audience = Audience(session, tree)
        self._snapshots: dict[str, Members] = {}
        self._missing: dict[str, tuple[Epochs, frozenset[tuple[str, str]]]] = {}
        """By topic: its epochs, and the queues that were missing then, as a publisher knows them."""
        self._unsure: dict[Delayed, Due] = {}
        """Frames whose move was not answered."""
        self._turn = 0

    def move(self, lead: Lead, items: Sequence[Delayed]) -> list[Delayed]:
        """Move what is due, in this order; return what could not be moved and is to be tried again later.

        Raises `TransactionFailed` at the lead's own znode if we lead no more. A lost connection raises too: then call
        it again with the same items.
        """
        self._snapshots.clear()
        later: list[Delayed] = []
        for chunk in in_chunks(items, lambda item: (1, item.size), READ_AT_ONCE, READ_BYTES):
            later += self._commit(lead, self._read(chunk, later))
        return later

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self, items: list[Delayed], later: list[Delayed]) -> list[Due]:
        """The frames of the items that still exist."""

        def unreadable(item: Delayed, error: StoreError) -> None:
            if isinstance(error, ConnectionLost):
                raise error
            log.warning("a due message cannot be read, trying on: %s", error)
            later.append(item)

        read = read_many(self._session, items, lambda item: self._session.get_async(item.path(self._tree)), unreadable)
        found = []
        for item in items:
            if item not in read:
                if (sent := self._unsure.pop(item, None)) is not None:
                    self._note(sent, None)  # we moved it ourselves, and heard no answer
                continue
            raw = read[item][0]
            try:
                found.append(Due(item, raw, frames.decode(raw)))
            except CannotDecode as error:
                log.error("%s is set aside: %s", item.path(self._tree), error.reason)
                set_aside(self._session, self._tree, item.path(self._tree), raw)
        return found

    # -- moving --------------------------------------------------------------------------------------------------

    def _commit(self, lead: Lead, found: list[Due]) -> list[Delayed]:
        later: list[Delayed] = []
        pending = deque(found)
        attempts, most = 0, BATCH
        while pending:
            batch, operations, owners = self._assemble(lead, pending, most)
            try:
                results = self._session.multi(operations)
            except ConnectionLost:
                self._unsure |= {due.item: due for due in batch}
                raise
            except TransactionFailed as error:
                if lead.lost_by(error):
                    raise
                attempts += 1
                if attempts < ATTEMPTS and self._mend(error, owners[error.index]):
                    pending = deque(due for due in pending if not due.over)
                elif len(batch) > 1:
                    attempts, most = 0, 1  # to find out which one it is
                else:
                    log.warning("a due message cannot be moved, trying on: %s", error)
                    later.append(pending.popleft().item)
                continue
            attempts = 0
            zxid = results[-1].mzxid if isinstance(operations[-1], SetData) else None
            for due in batch:
                pending.popleft()
                self._unsure.pop(due.item, None)
                self._note(due, zxid)
            self.moved += len(batch)
        return later

    def _assemble(
        self, lead: Lead, pending: deque[Due], most: int
    ) -> tuple[list[Due], list[Operation], list[Due | None]]:
        """As many of the first frames as one transaction holds, its operations, and the frame of each operation."""
        operations: list[Operation] = [*lead.guard]
        owners: list[Due | None] = [None] * len(operations)
        seen: set[Operation] = set()
        batch: list[Due] = []
        size = 0
        for due in pending:
            plan = [each for each in self._plan(due) if each not in seen]
            added = transaction_size(plan, self._session.overhead)
            full = len(operations) + len(plan) > BATCH_OPERATIONS or size + added > BATCH_BYTES
            if batch and (full or len(batch) >= most):
                break
            seen.update(each for each in plan if isinstance(each, Check) or self._is_proof(each))
            operations += plan
            owners += [due] * len(plan)
            size += added
            batch.append(due)
        if self._trail.records:  # whose answer tells which transaction it was
            operations.append(SetData(self._tree.bucket(batch[0].item.bucket), b""))
            owners.append(None)
        return batch, operations, owners

    def _is_proof(self, operation: Operation) -> bool:
        """Whether an operation only proves that a topic does not exist."""
        return operation.path.startswith(f"{self._tree.subscribers}/")

    def _plan(self, due: Due) -> list[Operation]:
        """The operations that move one frame."""
        topic, now = due.topic, self._clock()
        snapshot = self._members(topic)
        expired = {place for place, message in enumerate(due.packed) if 0 < message.expires <= now}
        due.left = tuple(place for place in range(len(due.packed)) if place not in expired)
        self._turn += 1
        routed = route([m for m in snapshot.members if not m.full], due.packed, self._turn, frozenset(expired))
        due.skipped = {m.subscription: "its queue is full" for m in snapshot.members if m.full}
        known, missing = self._missing.get(topic, ((), frozenset()))
        if known == epochs(snapshot):
            due.skipped |= {t.name_for(topic): "its queue is missing" for t in routed if t.queue in missing}
        due.targets = tuple(target for target in routed if target.name_for(topic) not in due.skipped)
        due.dead = "" if snapshot.members or due.drop or not due.left else "nobody subscribed when it was due"
        if not snapshot.members:
            due.skipped[NOBODY] = due.dead or ("nobody subscribed" if due.left else "it had expired")
        elif not due.left:
            due.skipped |= {m.subscription: "it had expired" for m in snapshot.members}
        try:
            return self._operations(due, snapshot, now)
        except MessageTooLarge as error:
            # Its publisher is gone from here, and could not know who would subscribe by now.
            due.targets, due.dead = (), str(error)
            due.skipped[NOBODY] = due.dead
            return self._operations(due, snapshot, now)

    def _operations(self, due: Due, snapshot: Members, now: float) -> list[Operation]:
        own = self._tree.topic(due.topic)
        overhead = self._session.overhead
        checked, *rest = due.operations(self._tree, due.item.producer, snapshot, overhead)
        # A topic that does not exist has no epoch: making it and removing it shows that nobody has made it since.
        proof: tuple[Operation, ...] = (checked,) if snapshot.epoch >= 0 else absent(own)
        operations = [*proof, *rest]
        if due.dead:
            operations += due.dead_letters(self._tree, now)
        moved = encode(Moved(due.queues(self._tree), due.skipped))
        operations += [Create(due.item.record(self._tree), moved), Delete(due.item.path(self._tree))]
        if transaction_size(operations, overhead) + 1024 > MAX_TRANSACTION:
            raise MessageTooLarge(due.topic, due.size, MAX_TRANSACTION // 2, len(due.targets))
        return operations

    def _members(self, topic: str) -> Members:
        if topic not in self._snapshots:
            self._snapshots[topic] = self._audience.get(topic)
        return self._snapshots[topic]

    # -- mending -------------------------------------------------------------------------------------------------

    def _mend(self, error: TransactionFailed, due: Due | None) -> bool:
        """Remove the cause of a refusal; True if the transaction is to be tried again."""
        operation, cause = error.operation, error.cause
        path: str = operation.path
        if due is None:
            return False
        if path == self._tree.subscribers or self._is_proof(operation):
            if not isinstance(cause, (BadVersion, NodeMissing, NodeExists, NotEmpty)):
                return False
            for topic in self._snapshots:  # others of the batch may have seen the same
                self._audience.forget(topic)
            self._snapshots.clear()
            return True
        if path == due.item.path(self._tree):
            if isinstance(cause, NotEmpty):
                delete_children(self._session, path)  # znodes below a frame cannot be ours
            else:
                due.over = isinstance(cause, NodeMissing)
            return isinstance(cause, (NodeMissing, NotEmpty))
        if path == due.item.record(self._tree) and isinstance(cause, NodeExists):
            self._session.multi([Delete(path)])  # of one that had its number before
            return True
        if not isinstance(cause, NodeMissing):
            return False
        if path.startswith((f"{self._tree.dead}/", f"{self._tree.bodies}/")):
            place = path.rpartition("/")[0]  # for dead letters or bodies
            create_if_missing(self._session, place.rpartition("/")[0], place)
            return True
        lost = next((t.queue for t in due.targets if path.startswith(f"{self._tree.queue(*t.queue)}/")), None)
        if lost is not None:
            known, missing = self._missing.get(due.topic, ((), frozenset()))
            others = missing if known == due.epochs else frozenset()
            self._missing[due.topic] = due.epochs, others | {lost}
        return lost is not None

    def _note(self, due: Due, zxid: int | None) -> None:
        """Record in the trail what became of a frame."""
        if not self._trail.records:
            return
        self._trail.due(due, due.item.producer, due.numbers, due.left, due.item.due / 1000, zxid)
        for place, message in enumerate(due.packed):
            one: dict[str, Any] = {
                "topic": due.topic, "producer": due.item.producer, "seq": due.seq + due.numbers[place], "n": 1
            }  # fmt: skip
            if place not in due.left:
                self._trail.note("expired", **one, expires=message.expires)
            elif due.dead:
                self._trail.note("dead", **one, sub=NOBODY, reason=due.dead)


def _repacked(frame: Frame, priority: int) -> list[Packed]:
    """The messages of a frame as they were published, without their ids, which are remembered already."""
    packed = []
    for place, data in enumerate(frame.data):
        raw = msgspec.msgpack.encode(data)
        extra = None if frame.extras is None else frame.extras[place]
        if extra is None:
            packed.append(Packed(raw, len(raw), frame.codec, priority=priority))
            continue
        more = msgspec.msgpack.encode(extra)
        packed.append(
            Packed(
                raw,
                len(raw) + len(more),
                frame.codec,
                more,
                extra.key,
                headers=extra.headers,
                expires=extra.expires,
                priority=priority,
            )
        )
    return packed
