"""The publish path: one transaction for each frame, several in flight, each stored exactly once.

A publish is one multi: it checks the topic's epoch, writes the producer's sequence number at its expected version, and
creates an entry in every subscription's queue. Transactions are pipelined at versions v, v+1, ...: if one is refused,
so are all behind it, and nothing is ever stored out of order.

Recovery is one procedure for every fault. It waits until nothing is in flight, then *fences* (see producer.py): no
earlier transaction can be stored any more, and the sequence number says exactly which frames were. The others are built
again from the current subscriptions and sent in order. So a lost reply leads to one copy, whether it was lost before or
after the commit. The first claim of the producer's node is a recovery with nothing in flight.

Threads: callers send under `_order`; kazoo's completion thread settles under `_state`, which is locked only briefly;
`zkms-publisher` recovers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from zkms.errors import (
    BadVersion,
    Closed,
    ConnectionLost,
    NodeExists,
    NodeMissing,
    NoSubscribers,
    StoreError,
    Timeout,
    TransactionFailed,
    Unauthorised,
    ZkmsError,
)
from zkms.message.frame import Packed
from zkms.publish.audience import Audience, Members, QueueTarget, route
from zkms.publish.delayed import DelayedFrame, DelayedPublishing
from zkms.publish.limits import Limits, Room
from zkms.publish.options import Kind
from zkms.publish.producer import WINDOW, Producer
from zkms.publish.receipt import Receipt
from zkms.publish.shipment import OWN_BYTES, Epochs, OutgoingFrame, Shipment, epochs
from zkms.trail.hooks import Recorder
from zkms.tree.paths import ID_LOG, Tree
from zkms.tree.records import IdRecord, decode
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Create, Operation, transaction_size
from zkms.zookeeper.recipes import attempt
from zkms.zookeeper.session import Session, failed_with

log = logging.getLogger("zkms.publish")
IDLE_SWEEP = 1.0
WINDOW_BYTES = 2 * 1024 * 1024
"""The most bytes in flight: further publishes wait, as they do at WINDOW transactions."""


class Pipeline:
    """Publishes for one bus. Thread-safe."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        audience: Audience,
        producer: Producer,
        own: Callable[[str], str | None],
    ) -> None:
        self._session = session
        self._tree = tree
        self._audience = audience
        self._producer = producer
        self._own = own
        """Returns the id of our own live subscription to a topic, if there is one."""
        self._limits = Limits(session, tree, self._dropped)
        self.delays = DelayedPublishing(session, tree)
        self._order = threading.Lock()
        self._state = threading.Condition()
        self._outstanding: deque[Shipment] = deque()
        self._missing: dict[str, tuple[Epochs, frozenset[tuple[str, str]]]] = {}
        """By topic: its epochs, and the queues that were missing then, which are skipped. A new queue bumps an epoch,
        so this is valid for those epochs only."""
        self._ready = False
        self._wanted = False
        self._failure: ZkmsError | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self.trail = Recorder()

    # -- sending -------------------------------------------------------------------------------------------------

    def send(self, kind: Kind, packed: list[Packed], deadline: float) -> Future[Receipt]:
        """Send one frame; the Future gets its receipt, or the error if it is not stored."""
        if kind.due is None:
            shipment = Shipment.of_one(kind.topic, packed, self._without(kind), kind.drop, deadline)
        else:
            shipment = Shipment([self.frame(kind, packed, deadline)], deadline)
        self.ship(shipment)
        return shipment.frames[0].future

    def frame(self, kind: Kind, packed: list[Packed], deadline: float) -> OutgoingFrame:
        """Return a frame for a `Shipment`."""
        if kind.due is None:
            return OutgoingFrame(kind.topic, packed, without=self._without(kind), drop=kind.drop, deadline=deadline)
        return DelayedFrame(kind.topic, packed, due=kind.due, drop=kind.drop, deadline=deadline)

    def _without(self, kind: Kind) -> str | None:
        """Return our own subscription if the message must not go there."""
        return None if kind.to_self else self._own(kind.topic)

    def ship(self, shipment: Shipment) -> None:
        """Send a transaction; its frames' Futures get their receipts. Raises if nothing could be sent."""
        while True:
            try:
                snapshots = [self._admit(outgoing) for outgoing in shipment.frames]
            except NoSubscribers:
                if len(shipment.frames) > 1 or shipment.also or not shipment.frames[0].drop:
                    raise
                shipment.frames[0].future.set_result(self._receipt(shipment.frames[0], {}))
                return
            except ConnectionLost as error:
                raise _unsent(error) from error
            # Also if all queues are full: sent out of turn, it could be missed behind a gap announced before it.
            self._enter(shipment.deadline)
            newest = self._audience.is_newest
            if all(newest(f.topic, snapshot) for f, snapshot in zip(shipment.frames, snapshots, strict=True)):
                break
            self._order.release()
        try:
            self._number(shipment)
            operations = self._operations(shipment, snapshots)
            with self._state:
                self._outstanding.append(shipment)
            self._launch(shipment, operations)
        finally:
            self._order.release()

    def _admit(self, outgoing: OutgoingFrame) -> Members:
        """Choose the frame's targets and wait until their queues have room for it."""
        need = Room(len(outgoing.packed), outgoing.size)
        snapshot = self._resolve(outgoing)
        while not self._limits.admit(outgoing.topic, snapshot, outgoing.targets, need, outgoing.deadline):
            self._audience.forget(outgoing.topic)
            self._check_deadline(outgoing)
            snapshot = self._resolve(outgoing)
        return snapshot

    def _resolve(self, outgoing: OutgoingFrame) -> Members:
        """Choose the frame's targets; "no subscribers" counts only once ZooKeeper's leader has confirmed the epoch."""
        if isinstance(outgoing, DelayedFrame):
            return self.delays.prepare(outgoing)
        topic = outgoing.topic
        while True:
            snapshot = self._audience.get(topic, outgoing.deadline)
            others = [m for m in snapshot.members if m.subscription != outgoing.without]
            full: dict[str, str] = {}
            if snapshot.everyone is not None and outgoing.without is None and not outgoing.duplicates:
                routed = snapshot.everyone
            else:
                full = {m.subscription: "its queue is full" for m in others if m.full}
                open_ones = [m for m in others if not m.full]
                duplicates = frozenset(outgoing.duplicates)
                routed = tuple(route(open_ones, outgoing.packed, self._producer.seq, duplicates))
            if self._missing and topic in self._missing:
                known, missing = self._missing[topic]
                if known == epochs(snapshot):
                    full |= {t.name_for(topic): "its queue is missing" for t in routed if t.queue in missing}
            outgoing.skipped = full
            outgoing.targets = tuple(t for t in routed if t.name_for(topic) not in full) if full else routed
            if outgoing.targets and snapshot.epoch < 0:
                self._make_topic(topic, outgoing.deadline)  # only patterns match so far: it needs an epoch of its own
                continue
            if outgoing.targets:
                return snapshot
            try:
                checks = [Check(self._tree.subscribers, snapshot.roll), *self._checks(topic, snapshot)]
                if snapshot.epoch < 0:
                    checks.append(Check(self._tree.topic(topic), 0))  # last, so that all others were checked before
                self._session.multi(checks, deadline=outgoing.deadline)
            except TransactionFailed as error:
                missing_topic = failed_with(error, NodeMissing, path=self._tree.topic(topic))
                if missing_topic and snapshot.epoch < 0:
                    raise NoSubscribers(topic) from None
                if failed_with(error, NodeMissing) or failed_with(error, BadVersion):
                    self._audience.forget(topic)
                    self._check_deadline(outgoing)
                    continue
                raise error.cause from error
            except ConnectionLost:  # a check changes nothing, so it can be repeated
                if time.monotonic() >= outgoing.deadline:
                    raise
                continue
            if snapshot.epoch < 0:  # created since the read
                continue
            if not others:
                raise NoSubscribers(topic)
            return snapshot

    def _checks(self, topic: str, snapshot: Members) -> list[Operation]:
        """Check that no subscription was added or removed since the snapshot."""
        own = [Check(self._tree.topic(topic), snapshot.epoch)] if snapshot.epoch >= 0 else []
        return [*own, *(Check(self._tree.topic(pattern), epoch) for pattern, epoch in snapshot.patterns)]

    def _make_topic(self, topic: str, deadline: float) -> None:
        attempt(self._session, [Create(self._tree.topic(topic))], NodeExists, deadline=deadline)
        self._audience.forget(topic)

    def _check_deadline(self, outgoing: OutgoingFrame) -> None:
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

    def _number(self, shipment: Shipment) -> None:
        for outgoing in shipment.frames:
            self._producer.seq = outgoing.number(self._producer.name, self._producer.seq + 1)
        if not shipment.frames:
            self._producer.seq += 1  # without a message, the number still says whether the transaction was stored
        shipment.last = self._producer.seq

    def _operations(self, shipment: Shipment, snapshots: list[Members]) -> list[Operation]:
        """Return the transaction without the producer's operation; `StoreError` if it is too large to be sent."""
        overhead = self._session.overhead
        operations: list[Operation] = []
        for outgoing, snapshot in zip(shipment.frames, snapshots, strict=True):
            outgoing.place = len(operations) + 2  # after the check of its epoch and the producer's operation
            operations += outgoing.operations(self._tree, self._producer.name, snapshot, overhead)
        if len(shipment.frames) > 1 or shipment.also:  # a single frame checks its own size
            operations += shipment.also
            size = transaction_size(operations, overhead) + OWN_BYTES
            if size > MAX_TRANSACTION:
                raise StoreError(f"a transaction of about {size:,} bytes is over the limit of {MAX_TRANSACTION:,}")
        return operations

    def _launch(self, shipment: Shipment, operations: list[Operation]) -> None:
        operations.insert(1 if shipment.frames else 0, self._producer.advance(shipment.last))
        shipment.settled, shipment.error = False, None
        try:
            sent = self._session.multi_async(operations)
        except StoreError as error:  # too large after all: it has a number, so it must be settled in its turn
            sent = Future()
            sent.set_exception(error)
        sent.add_done_callback(lambda reply: self._settle(shipment, reply))

    # -- settling ------------------------------------------------------------------------------------------------

    def _settle(self, shipment: Shipment, reply: Future[list[Any]]) -> None:
        """Handle the reply of a transaction, on kazoo's completion thread; replies come in the order of sending."""
        error = reply.exception()
        with self._state:
            shipment.settled, shipment.error = True, error
            if shipment not in self._outstanding:
                return  # it failed when the bus was closed
            given_up = error is not None and self._closed  # nobody is left to recover
            if error is None or given_up:
                self._outstanding.remove(shipment)  # the first one, so this is quick
            else:
                self._ready, self._wanted = False, True
            self._state.notify_all()
        if given_up and error is not None:
            shipment.fail(error)
        if error is None:
            self._succeed(shipment, reply.result())

    def _succeed(self, shipment: Shipment, results: list[Any] | None = None) -> None:
        """Complete a stored transaction; without `results` the names of its entries are unknown."""
        zxid = None if results is None else results[1 if shipment.frames else 0].mzxid
        for outgoing in shipment.frames:
            names = [target.name_for(outgoing.topic) for target in outgoing.targets]
            paths = [None] * len(names) if results is None else results[outgoing.place : outgoing.place + len(names)]
            entries = dict(zip(names, paths, strict=True))
            if outgoing.shared and entries:
                self._keep_body(outgoing)
            if isinstance(outgoing, DelayedFrame):
                self.trail.delayed(outgoing, self._producer.name, zxid)
            else:
                self.trail.published(outgoing, self._producer.name, zxid)
            if outgoing.future.set_running_or_notify_cancel():
                outgoing.future.set_result(self._receipt(outgoing, entries, zxid))
        shipment.stored.set_result(None)

    def _dropped(self, target: QueueTarget, names: list[str], reason: str) -> None:
        """Record that entries were dropped from a queue to make room."""
        self.trail.purged(*target.queue, names, reason)

    def _keep_body(self, outgoing: OutgoingFrame) -> None:
        queues = tuple(self._tree.queue(*t.queue) for t in outgoing.targets if t.picks is None)
        self._producer.bodies.add(outgoing.seq, outgoing.size, queues)
        with self._state:
            self._state.notify_all()

    def _receipt(self, outgoing: OutgoingFrame, entries: dict[str, Any], zxid: int | None = None) -> Receipt:
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
            queues=outgoing.queues(self._tree),
            duplicates=outgoing.duplicates,
            delayed=outgoing.delayed,
        )

    def _remove(self, shipment: Shipment) -> bool:
        """Return False if it has been answered meanwhile."""
        with self._state:
            if shipment not in self._outstanding:
                return False
            self._outstanding.remove(shipment)
            self._state.notify_all()
            return True

    def _give_up(self, shipment: Shipment, error: BaseException) -> None:
        if self._remove(shipment):
            shipment.fail(error)

    # -- recovery ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        bodies = self._producer.bodies
        while True:
            with self._state:
                if bodies.kept:  # free the bodies of a burst a little later
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
            except Exception as error:  # noqa: BLE001 - callers get it, whatever it is
                log.warning("publishing cannot go on: %s", error)
                failure = error if isinstance(error, ZkmsError) else StoreError(f"{type(error).__name__}: {error}")
                for shipment in list(self._outstanding):
                    self._give_up(shipment, failure)
                with self._state:
                    self._failure = failure
                    self._state.notify_all()
        for shipment in list(self._outstanding):
            self._give_up(shipment, Closed("the bus was closed before ZooKeeper answered"))

    def _sweep(self) -> None:
        """Free unused bodies; an error here fails no publish."""
        try:
            freed = self._producer.bodies.sweep()
        except Exception as error:  # noqa: BLE001 - it must not fail what is in flight
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
            # Every request is answered or fails in bounded time: the session drops a connection that does not answer.
            self._state.wait_for(lambda: self._closed or all(shipment.settled for shipment in self._outstanding))
        stored = self._fence()
        waiting = []
        for shipment in list(self._outstanding):
            if stored is not None and shipment.last <= stored:
                self._remove(shipment)
                self._succeed(shipment)
            elif (final := self._final(shipment, stored)) is not None:
                self._give_up(shipment, final)
            else:
                waiting.append(shipment)
        with self._state:
            self._ready = True
            self._state.notify_all()
        for shipment in waiting:
            for outgoing in shipment.frames:
                self._audience.forget(outgoing.topic)
        for shipment in waiting:
            try:
                snapshots = [self._resolve(outgoing) for outgoing in shipment.frames]
                self._launch(shipment, self._operations(shipment, snapshots))
            except NoSubscribers as error:
                if len(shipment.frames) == 1 and not shipment.also and shipment.frames[0].drop:
                    self._remove(shipment)
                    self._succeed(shipment)
                else:
                    self._give_up(shipment, error)
            except ZkmsError as error:
                self._give_up(shipment, _unsent(error) if isinstance(error, ConnectionLost) else error)

    def _fence(self) -> int | None:
        while True:
            try:
                return self._producer.fence()
            except ConnectionLost:
                with self._state:
                    if self._closed:
                        raise Closed("the bus was closed before ZooKeeper answered") from None

    def _final(self, shipment: Shipment, stored: int | None) -> BaseException | None:
        """Return the error of a transaction that is not stored, or None if it is to be sent again."""
        error = shipment.error
        if isinstance(error, ConnectionLost) and error.outcome_unknown and stored is None:
            return error
        if shipment.cancelled or time.monotonic() >= shipment.deadline:
            return ConnectionLost("not stored in time", outcome_unknown=False)
        if isinstance(error, ConnectionLost):
            return None
        if isinstance(error, TransactionFailed):
            return self._final_refusal(shipment, error)
        return error

    def _final_refusal(self, shipment: Shipment, error: TransactionFailed) -> BaseException | None:
        if any(error.operation is each for each in shipment.also):
            return error
        if isinstance(error.operation, Create):
            outgoing = next((f for f in reversed(shipment.frames) if f.place - 2 <= error.index), None)
            if isinstance(error.cause, NodeExists) and outgoing is not None:
                return self._duplicate(outgoing, error)
            if isinstance(error.cause, NodeMissing) and outgoing is not None:
                self._find_missing(outgoing, error)
                return None
        return None if isinstance(error.cause, (BadVersion, NodeMissing)) else error.cause

    def _find_missing(self, outgoing: OutgoingFrame, error: TransactionFailed) -> None:
        """Deal with a missing parent of the frame's entry, body or id: make it, or skip that queue."""
        place = error.index - outgoing.place
        if error.operation.path.startswith(f"{self._tree.ids}/"):
            self._make_id_shard(error.operation.path)
        elif isinstance(outgoing, DelayedFrame):
            self.delays.make(outgoing.bucket(self._tree))  # its bucket was empty, and removed
        elif place >= len(outgoing.targets):
            self._producer.bodies.claim()  # the parent of the bodies was removed by hand
        else:
            known, missing = self._missing.get(outgoing.topic, ((), frozenset()))
            others = missing if known == outgoing.epochs else frozenset()
            self._missing[outgoing.topic] = outgoing.epochs, others | {outgoing.targets[place].queue}

    def _duplicate(self, outgoing: OutgoingFrame, error: TransactionFailed) -> BaseException | None:
        """Mark the message whose id was stored before as a duplicate, so that the rest is sent without it."""
        path = error.operation.path
        place = next((p for p, given in outgoing.ids.items() if self._tree.id(outgoing.topic, given) == path), None)
        if place is None:
            return error.cause
        try:
            record = decode(self._session.get(path)[0], IdRecord)
            original = f"{record.producer}:{record.seq}"
        except NodeMissing:
            return None  # the id has just been forgotten
        except Unauthorised:
            original = "a message of another producer"
        except msgspec.MsgspecError:
            original = "an unknown message"
        outgoing.duplicates[place] = original
        return None

    def _make_id_shard(self, path: str) -> None:
        topic, *shard = path.removeprefix(f"{self._tree.ids}/").split("/")[:2]
        parents = [f"{self._tree.ids}/{topic}"]
        if shard and not shard[0].startswith(ID_LOG):
            parents.append(f"{parents[0]}/{shard[0]}")
        for parent in parents:
            attempt(self._session, [Create(parent)], NodeExists)

    def close(self, timeout: float) -> None:
        """Wait for what is in flight, at most `timeout` seconds, then fail the rest."""
        with self._state:
            self._state.wait_for(lambda: not self._outstanding, timeout)
            self._closed = True
            self._state.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def release(self) -> None:
        """Remove what nobody needs any more; call it after close()."""
        if self._outstanding or (self._thread is not None and self._thread.is_alive()):
            return
        try:
            self._producer.release()
        except Exception as error:  # noqa: BLE001 - whatever it is, the bus has to close
            log.warning("the producer's nodes are left to the cleaner: %r", error)


def _unsent(error: ConnectionLost) -> ConnectionLost:
    """Return the error of a connection lost before sending: the message is certainly not stored."""
    return ConnectionLost(f"not stored: {error}", outcome_unknown=False)
