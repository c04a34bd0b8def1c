"""The publish path: one transaction a frame, several in flight, each stored exactly once.

A publish is one multi: check the topic's epoch, write the producer's sequence number at its expected version, create an
entry in every subscription's queue. Transactions are pipelined at versions v, v+1, ...: if one is refused, so are all
behind it, and nothing is ever stored out of order.

Recovery is one procedure for every fault. It waits until nothing is in flight, then *fences* (see producer.py): after
that nothing sent earlier can be carried out any more, and the sequence number found says exactly which frames were
stored. The others are built again on fresh membership and sent in order. So a reply lost after the commit leads to one
copy, and a reply lost before it as well. The first claim of the producer's node is a recovery with nothing in flight.

Threads: callers send under `_order`; kazoo's completion thread settles under `_state`, which is held for moments only;
`zkms-publisher` recovers.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

import msgspec

from zkms import frame as frames
from zkms.errors import (
    BadVersion,
    Closed,
    ConnectionLost,
    MessageTooLarge,
    NodeExists,
    NodeMissing,
    NoSubscribers,
    StoreError,
    Timeout,
    TransactionFailed,
    ZkmsError,
)
from zkms.frame import Packed
from zkms.limits import Limits, Room
from zkms.membership import Members, Membership
from zkms.operations import MAX_TRANSACTION, Check, Create, Operation, transaction_size
from zkms.producer import WINDOW, Producer
from zkms.receipt import Receipt
from zkms.routing import Target, route
from zkms.session import Session, failed_with
from zkms.trail.recorder import Recorder
from zkms.tree import IdRecord, Tree, decode, encode, entry_prefix

log = logging.getLogger("zkms.publisher")
IDLE_SWEEP = 1.0
CARRIED_BYTES = 384
"""Bytes of a frame that its entries' names carry: their readers get it with the event, and need not ask for it."""
COPIED_BYTES = 8 * 1024
"""Bytes that a frame may cost in copies before it is stored once, for all queues to point to."""
WINDOW_BYTES = 2 * 1024 * 1024
"""Bytes in flight at the most: back-pressure past that, as past WINDOW transactions."""


Epochs = tuple[int, ...]


class Outgoing:
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
        self.targets: tuple[Target, ...] = ()
        self.skipped: dict[str, str] = {}
        self.duplicates: dict[int, str] = {}
        """Places of messages whose ids were stored before, and as what: nobody gets these again."""
        self.epochs: Epochs = ()
        self.shared = False
        """Whether the frame is stored once, as a body, and the queues get pointers to it."""
        self.settled = True
        self.error: BaseException | None = None

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


class Publisher:
    """Publishes for one bus. Thread-safe."""

    def __init__(self, session: Session, tree: Tree, membership: Membership, producer: Producer) -> None:
        self._session = session
        self._tree = tree
        self._membership = membership
        self._producer = producer
        self._limits = Limits(session, tree)
        self._order = threading.Lock()
        self._state = threading.Condition()
        self._outstanding: deque[Outgoing] = deque()
        self._missing: dict[str, tuple[Epochs, frozenset[str]]] = {}
        """By topic: its epochs, and the lanes that had no queue then, which must not stop us. Making a queue bumps an
        epoch, so this holds as long as the epochs do."""
        self._ready = False
        self._wanted = False
        self._failure: ZkmsError | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self.trail: Recorder | None = None

    @property
    def under_way(self) -> int:
        """Transactions that ZooKeeper has not answered yet."""
        return len(self._outstanding)

    def wait_until_under_way(self, count: int, deadline: float) -> None:
        """Return when at most `count` transactions are under way, or at the deadline."""
        with self._state:
            left = max(0.0, deadline - time.monotonic())
            self._state.wait_for(lambda: self._closed or len(self._outstanding) <= count, left)

    # -- sending -------------------------------------------------------------------------------------------------

    def send(
        self, topic: str, packed: list[Packed], *, without: str | None, drop: bool, deadline: float
    ) -> Future[Receipt]:
        """Send one frame; the Future has its receipt, or the reason why it is not stored.

        `without` is a subscription that shall not get it. `drop`: nobody there is fine.
        """
        outgoing = Outgoing(topic, packed, without=without, drop=drop, deadline=deadline)
        need = Room(len(packed), sum(message.size for message in packed))
        while True:
            try:
                snapshot = self._resolve(outgoing)
                while not self._limits.admit(topic, outgoing.targets, need, deadline):
                    self._membership.forget(topic)
                    self._check_deadline(outgoing)
                    snapshot = self._resolve(outgoing)
            except NoSubscribers:
                if not drop:
                    raise
                return self._finished(outgoing)
            except ConnectionLost as error:
                raise _unsent(error) from error
            # Also if all queues are full: it has to wait for its turn, lest it be missed behind a gap announced before.
            self._enter(deadline)
            if self._membership.is_newest(topic, snapshot):
                break
            self._order.release()
        try:
            self._number(outgoing)
            operations = self._operations(outgoing, snapshot)
            with self._state:
                self._outstanding.append(outgoing)
            self._launch(outgoing, operations)
        finally:
            self._order.release()
        return outgoing.future

    def _finished(self, outgoing: Outgoing) -> Future[Receipt]:
        """Nobody gets it, and that is fine."""
        outgoing.future.set_result(self._receipt(outgoing, {}))
        return outgoing.future

    def _resolve(self, outgoing: Outgoing) -> Members:
        """Who gets it; nobody is believed only after ZooKeeper's leader has confirmed the epoch."""
        topic = outgoing.topic
        while True:
            snapshot = self._membership.get(topic, outgoing.deadline)
            others = [m for m in snapshot.members if m.subscription != outgoing.without]
            full = {m.subscription: "its queue is full" for m in others if m.full}
            open_ones = [m for m in others if not m.full]
            routed = route(open_ones, outgoing.packed, self._producer.seq, frozenset(outgoing.duplicates))
            epochs, missing = self._missing.get(topic, ((), frozenset()))
            if epochs == _epochs(snapshot):
                full |= {target.lane: "its queue is missing" for target in routed if target.lane in missing}
            outgoing.skipped = full
            outgoing.targets = tuple(target for target in routed if target.lane not in full)
            if outgoing.targets and snapshot.epoch < 0:
                self._make_topic(topic, outgoing.deadline)  # its subscribers are a pattern's: one of its own may come
                continue
            if outgoing.targets:
                return snapshot
            try:
                checks = [Check(self._tree.subscribers, snapshot.roll), *self._checks(topic, snapshot)]
                if snapshot.epoch < 0:
                    checks.append(Check(self._tree.topic(topic), 0))  # last, so that all else has been looked at
                self._session.multi(checks, deadline=outgoing.deadline)
            except TransactionFailed as error:
                missing_topic = failed_with(error, NodeMissing, path=self._tree.topic(topic))
                if missing_topic and snapshot.epoch < 0:
                    raise NoSubscribers(topic) from None
                if failed_with(error, NodeMissing) or failed_with(error, BadVersion):
                    self._membership.forget(topic)
                    self._check_deadline(outgoing)
                    continue
                raise error.cause from error
            except ConnectionLost:  # a check changes nothing, so it can be asked again
                if time.monotonic() >= outgoing.deadline:
                    raise
                continue
            if snapshot.epoch < 0:  # made since we looked
                continue
            if not others:
                raise NoSubscribers(topic)
            return snapshot

    def _checks(self, topic: str, snapshot: Members) -> list[Operation]:
        """That nobody has come or gone since."""
        own = [Check(self._tree.topic(topic), snapshot.epoch)] if snapshot.epoch >= 0 else []
        return [*own, *(Check(self._tree.topic(pattern), epoch) for pattern, epoch in snapshot.patterns)]

    def _make_topic(self, topic: str, deadline: float) -> None:
        try:
            self._session.multi([Create(self._tree.topic(topic))], deadline=deadline)
        except TransactionFailed as error:
            if not failed_with(error, NodeExists):
                raise error.cause from error
        self._membership.forget(topic)

    def _check_deadline(self, outgoing: Outgoing) -> None:
        if time.monotonic() >= outgoing.deadline:
            raise Timeout(f"{outgoing.topic!r}: not published in time; nothing was stored")

    def _enter(self, deadline: float) -> None:
        """Return holding `_order`, ready to send and with room in the window."""
        if self._thread is None:
            with self._state:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="zkms-publisher", daemon=True)
                    self._thread.start()
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not self._order.acquire(timeout=left):
                raise ConnectionLost("could not be sent to ZooKeeper in time", outcome_unknown=False)
            with self._state:
                if self._roomy() and not self._closed:
                    return
            self._order.release()
            with self._state:
                if self._closed:
                    raise Closed("the bus is closed")
                if not self._ready:
                    self._failure, self._wanted = None, True
                    self._state.notify_all()
                self._state.wait_for(
                    lambda: self._closed or self._failure or self._roomy(),
                    max(0.0, deadline - time.monotonic()),
                )
                if self._failure is not None:
                    raise self._failure

    def _roomy(self) -> bool:
        sent = sum(outgoing.size for outgoing in self._outstanding)
        return (
            self._ready and len(self._outstanding) < WINDOW and sent < WINDOW_BYTES and not self._producer.bodies.full
        )

    def _number(self, outgoing: Outgoing) -> None:
        outgoing.seq = self._producer.seq + 1
        self._producer.seq = outgoing.last
        outgoing.at = time.time()
        first: dict[str, int] = {}
        for place, given in outgoing.ids.items():
            if first.setdefault(given, place) != place:  # twice in one frame
                outgoing.duplicates[place] = f"{self._producer.name}:{outgoing.seq + first[given]}"

    def _operations(self, outgoing: Outgoing, snapshot: Members) -> list[Operation]:
        """The transaction but for the producer's part; refused here if it is too large to be sent."""
        topic = outgoing.topic
        outgoing.epochs = _epochs(snapshot)
        said = topic if snapshot.patterns else None  # a pattern's queue does not say which topic it was
        whole = self._encode(outgoing, None, said)
        outgoing.size = len(whole)
        copies = sum(target.picks is None for target in outgoing.targets)
        outgoing.shared = (copies - 1) * len(whole) > COPIED_BYTES
        body = (self._producer.name, outgoing.seq) if outgoing.shared else None
        encoded: dict[tuple[int, ...] | None, tuple[str, bytes]] = {None: _entry(outgoing, None, whole, body)}
        operations: list[Operation] = [Check(self._tree.topic(topic), snapshot.epoch)]
        for lane, member, picks in outgoing.targets:
            if picks not in encoded:
                encoded[picks] = _entry(outgoing, picks, self._encode(outgoing, picks, said), None)
            name, data = encoded[picks]
            operations.append(Create(f"{self._tree.queue(lane, member.topic)}/{name}", data, sequence=True))
        if body is not None:
            operations.append(Create(self._tree.body(*body), whole))
        operations += self._ids(outgoing)
        operations += [Check(self._tree.subscribers, snapshot.roll), *self._checks(topic, snapshot)[1:]]
        excess = transaction_size(operations) + 1024 - MAX_TRANSACTION  # 1024: the producer's own operation
        if excess > 0:
            size, copied = len(whole), 1 if body else max(1, copies)
            raise MessageTooLarge(topic, size, max(0, size - excess // copied - 1), len(outgoing.targets))
        return operations

    def _encode(self, outgoing: Outgoing, picks: tuple[int, ...] | None, topic: str | None) -> bytes:
        """The frame, or the part of it that some get."""
        messages = outgoing.packed if picks is None else [outgoing.packed[place] for place in picks]
        return frames.encode(self._producer.name, outgoing.seq, outgoing.at, messages, picks, topic)

    def _ids(self, outgoing: Outgoing) -> list[Operation]:
        """What remembers the ids that were given, so that no message is stored a second time under one of them."""
        return [
            Create(self._tree.id(outgoing.topic, given), encode(IdRecord(self._producer.name, outgoing.seq + place)))
            for place, given in outgoing.ids.items()
        ]

    def _launch(self, outgoing: Outgoing, operations: list[Operation]) -> None:
        operations.insert(1, self._producer.advance(outgoing.last))
        outgoing.settled, outgoing.error = False, None
        try:
            sent = self._session.multi_async(operations)
        except StoreError as error:  # too large after all: it has a number, so it has to be settled in its turn
            sent = Future()
            sent.set_exception(error)
        sent.add_done_callback(lambda reply: self._settle(outgoing, reply))

    # -- settling ------------------------------------------------------------------------------------------------

    def _settle(self, outgoing: Outgoing, reply: Future[list[Any]]) -> None:
        """On kazoo's completion thread: answers come in the order of sending."""
        error = reply.exception()
        with self._state:
            outgoing.settled, outgoing.error = True, error
            if outgoing not in self._outstanding:
                return  # given up when the bus was closed
            given_up = error is not None and self._closed  # nobody is left to recover
            if error is None or given_up:
                self._outstanding.remove(outgoing)  # the first one, so this is quick
            else:
                self._ready, self._wanted = False, True
            self._state.notify_all()
        if given_up and outgoing.future.set_running_or_notify_cancel():
            outgoing.future.set_exception(error)
        if error is None:
            _, stat, *paths = reply.result()
            lanes = [target.lane for target in outgoing.targets]
            self._succeed(outgoing, dict(zip(lanes, paths, strict=False)), stat.mzxid)

    def _succeed(self, outgoing: Outgoing, entries: dict[str, Any], zxid: int | None = None) -> None:
        if outgoing.shared and entries:
            queues = tuple(self._tree.queue(t.lane, t.member.topic) for t in outgoing.targets if t.picks is None)
            self._producer.bodies.add(outgoing.seq, outgoing.size, queues)
            with self._state:
                self._state.notify_all()
        if self.trail is not None:
            self.trail.published(outgoing, self._producer.name, entries, zxid)
        if outgoing.future.set_running_or_notify_cancel():
            outgoing.future.set_result(self._receipt(outgoing, entries, zxid))

    def _receipt(self, outgoing: Outgoing, entries: dict[str, Any], zxid: int | None = None) -> Receipt:
        return Receipt(
            self._session,
            self._tree,
            outgoing.topic,
            producer=self._producer.name,
            seq=outgoing.seq,
            count=len(outgoing.packed),
            entries=entries,
            skipped=outgoing.skipped,
            zxid=zxid,
            queues={t.lane: self._tree.queue(t.lane, t.member.topic) for t in outgoing.targets},
            duplicates=outgoing.duplicates,
        )

    def _remove(self, outgoing: Outgoing) -> bool:
        """False if it has been answered meanwhile."""
        with self._state:
            if outgoing not in self._outstanding:
                return False
            self._outstanding.remove(outgoing)
            self._state.notify_all()
            return True

    def _give_up(self, outgoing: Outgoing, error: BaseException) -> None:
        if self._remove(outgoing) and outgoing.future.set_running_or_notify_cancel():
            outgoing.future.set_exception(error)

    # -- recovery ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        bodies = self._producer.bodies
        while True:
            with self._state:
                if bodies.kept:  # what a burst has left behind is freed a little later
                    self._state.wait_for(lambda: self._closed or self._wanted or bodies.due, IDLE_SWEEP)
                else:
                    self._state.wait_for(lambda: self._closed or self._wanted or bodies.kept)
                if self._closed:
                    break
                recover, self._wanted = self._wanted, False
            try:
                if recover:
                    with self._order:
                        self._recover()
                elif bodies.kept:
                    self._sweep()
            except Exception as error:  # noqa: BLE001 - callers must hear of it, whatever it is
                log.warning("publishing cannot go on: %s", error)
                failure = error if isinstance(error, ZkmsError) else StoreError(f"{type(error).__name__}: {error}")
                for outgoing in list(self._outstanding):
                    self._give_up(outgoing, failure)
                with self._state:
                    self._failure = failure
                    self._state.notify_all()
        for outgoing in list(self._outstanding):
            self._give_up(outgoing, Closed("the bus was closed before ZooKeeper answered"))

    def _sweep(self) -> None:
        """Whatever happens here is no failure of a publish."""
        try:
            freed = self._producer.bodies.sweep()
        except Exception as error:  # noqa: BLE001 - what is in flight must not be given up for it
            log.log(
                logging.INFO if isinstance(error, ConnectionLost) else logging.WARNING,
                "bodies will be freed later: %s: %s",
                type(error).__name__,
                error,
            )
            with self._state:
                self._state.wait_for(lambda: self._closed or self._wanted, IDLE_SWEEP)
            return
        if freed:
            with self._state:
                self._state.notify_all()

    def _recover(self) -> None:
        with self._state:
            if self._ready:
                return
            # Every request is answered or failed in bounded time: the session drops a connection that does not answer.
            self._state.wait_for(lambda: self._closed or all(o.settled for o in self._outstanding))
        stored = self._fence()
        waiting = []
        for outgoing in list(self._outstanding):
            if stored is not None and outgoing.last <= stored:
                self._remove(outgoing)
                self._succeed(outgoing, {target.lane: None for target in outgoing.targets})
            elif (final := self._final(outgoing, stored)) is not None:
                self._give_up(outgoing, final)
            else:
                waiting.append(outgoing)
        with self._state:
            self._ready = True
            self._state.notify_all()
        for outgoing in waiting:
            self._membership.forget(outgoing.topic)
        for outgoing in waiting:
            try:
                self._launch(outgoing, self._operations(outgoing, self._resolve(outgoing)))
            except NoSubscribers as error:
                if outgoing.drop:
                    self._remove(outgoing)
                    self._succeed(outgoing, {})
                else:
                    self._give_up(outgoing, error)
            except ZkmsError as error:
                self._give_up(outgoing, _unsent(error) if isinstance(error, ConnectionLost) else error)

    def _fence(self) -> int | None:
        while True:
            try:
                return self._producer.fence()
            except ConnectionLost:
                with self._state:
                    if self._closed:
                        raise Closed("the bus was closed before ZooKeeper answered") from None

    def _final(self, outgoing: Outgoing, stored: int | None) -> BaseException | None:
        """The error to give up with, or None if the frame, which is not stored, is to be sent again."""
        error = outgoing.error
        if isinstance(error, ConnectionLost) and error.outcome_unknown and stored is None:
            return error
        if outgoing.future.cancelled() or time.monotonic() >= outgoing.deadline:
            return ConnectionLost("not stored in time", outcome_unknown=False)
        if isinstance(error, ConnectionLost):
            return None
        if isinstance(error, TransactionFailed):
            if isinstance(error.operation, Create) and isinstance(error.cause, NodeMissing):
                if error.operation.path.startswith(f"{self._tree.ids}/"):
                    self._make_id_shard(error.operation.path)
                    return None
                if error.index - 2 >= len(outgoing.targets):
                    self._producer.bodies.claim()  # the place for bodies was removed by hand
                    return None
                lane = outgoing.targets[error.index - 2].lane
                epochs, missing = self._missing.get(outgoing.topic, ((), frozenset()))
                known = missing if epochs == outgoing.epochs else frozenset()
                self._missing[outgoing.topic] = outgoing.epochs, known | {lane}
                return None
            if isinstance(error.operation, Create) and isinstance(error.cause, NodeExists):
                return self._duplicate(outgoing, error)
            return None if isinstance(error.cause, (BadVersion, NodeMissing)) else error.cause
        return error

    def _duplicate(self, outgoing: Outgoing, error: TransactionFailed) -> BaseException | None:
        """One of its messages has an id that was stored before: the rest goes without it."""
        path = error.operation.path
        place = next((p for p, given in outgoing.ids.items() if self._tree.id(outgoing.topic, given) == path), None)
        if place is None:
            return error.cause
        try:
            record = decode(self._session.get(path)[0], IdRecord)
            original = f"{record.producer}:{record.seq}"
        except NodeMissing:
            return None  # its window has just ended
        except msgspec.MsgspecError:
            original = "a message that nobody knows"
        outgoing.duplicates[place] = original
        return None

    def _make_id_shard(self, path: str) -> None:
        shard = path.rpartition("/")[0]
        for parent in (shard.rpartition("/")[0], shard):
            try:
                self._session.multi([Create(parent)])
            except TransactionFailed as error:
                if not failed_with(error, NodeExists):
                    raise error.cause from error

    def close(self, timeout: float) -> None:
        """Wait for what is in flight, at most `timeout` seconds, then fail the rest."""
        with self._state:
            self._state.wait_for(lambda: not self._outstanding, timeout)
            self._closed = True
            self._state.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def release(self) -> None:
        """After close(): leave nothing behind that nobody needs."""
        if self._outstanding or (self._thread is not None and self._thread.is_alive()):
            return
        try:
            self._producer.release()
        except Exception as error:  # noqa: BLE001 - whatever it is, the bus has to close
            log.warning("what is left of the producer is left to the cleaner: %r", error)


def _epochs(snapshot: Members) -> Epochs:
    return snapshot.epoch, *(epoch for _, epoch in snapshot.patterns)


def _entry(
    outgoing: Outgoing, picks: tuple[int, ...] | None, raw: bytes, body: tuple[str, int] | None
) -> tuple[str, bytes]:
    """The name of a queue entry but for its sequence, and its data."""
    messages = outgoing.packed if picks is None else [outgoing.packed[place] for place in picks]
    last = max(message.expires or math.inf for message in messages)
    carried = raw if len(raw) <= CARRIED_BYTES and not body else None
    name = entry_prefix(
        len(messages),
        len(raw),
        body=body,
        carried=carried,
        priority=outgoing.packed[0].priority,
        expires=0 if math.isinf(last) else math.ceil(last),
    )
    return name, b"" if body or carried else raw


def _unsent(error: ConnectionLost) -> ConnectionLost:
    """A connection lost while we prepared to send: whatever became of that request, the message is not stored."""
    return ConnectionLost(f"not stored: {error}", outcome_unknown=False)
