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
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

from zkms import frame as frames
from zkms.errors import (
    BadVersion,
    Closed,
    ConnectionLost,
    MessageTooLarge,
    NodeMissing,
    NoSubscribers,
    StoreError,
    Timeout,
    TransactionFailed,
    ZkmsError,
)
from zkms.frame import Packed
from zkms.limits import Limits, Room
from zkms.membership import Member, Members, Membership
from zkms.operations import MAX_TRANSACTION, Check, Create, Operation, transaction_size
from zkms.producer import WINDOW, Producer
from zkms.receipt import Receipt
from zkms.session import Session, failed_with
from zkms.trail.recorder import Recorder
from zkms.tree import Tree, entry_prefix

log = logging.getLogger("zkms.publisher")
IDLE_SWEEP = 1.0
CARRIED_BYTES = 384
"""Bytes of a frame that its entries' names carry: their readers get it with the event, and need not ask for it."""
COPIED_BYTES = 8 * 1024
"""Bytes that a frame may cost in copies before it is stored once, for all queues to point to."""
WINDOW_BYTES = 2 * 1024 * 1024
"""Bytes in flight at the most: back-pressure past that, as past WINDOW transactions."""


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
        self.raw = b""
        self.at = 0.0
        self.targets: tuple[Member, ...] = ()
        self.skipped: dict[str, str] = {}
        self.epoch = -1
        self.shared = False
        """Whether the frame is stored once, as a body, and the queues get pointers to it."""
        self.settled = True
        self.error: BaseException | None = None

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
        self._missing: dict[str, tuple[int, frozenset[str]]] = {}
        """By topic: an epoch, and the registrations that had no queue then, which must not stop us. Making a queue
        bumps the epoch, so this holds as long as the epoch does."""
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
            epoch, missing = self._missing.get(topic, (-1, frozenset()))
            if epoch == snapshot.epoch:
                full |= {m.subscription: "its queue is missing" for m in others if m.subscription in missing}
            outgoing.skipped = full
            outgoing.targets = tuple(m for m in others if m.subscription not in outgoing.skipped)
            if outgoing.targets:
                return snapshot
            try:
                check = Check(self._tree.topic(topic), max(snapshot.epoch, 0))
                self._session.multi([check], deadline=outgoing.deadline)
            except TransactionFailed as error:
                if failed_with(error, NodeMissing) and snapshot.epoch < 0:
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
        sent = sum(len(outgoing.raw) for outgoing in self._outstanding)
        return (
            self._ready and len(self._outstanding) < WINDOW and sent < WINDOW_BYTES and not self._producer.bodies.full
        )

    def _number(self, outgoing: Outgoing) -> None:
        outgoing.seq = self._producer.seq + 1
        self._producer.seq = outgoing.last
        outgoing.at = time.time()
        outgoing.raw = frames.encode(self._producer.name, outgoing.seq, outgoing.at, outgoing.packed)

    def _operations(self, outgoing: Outgoing, snapshot: Members) -> list[Operation]:
        """The transaction but for the producer's part; refused here if it is too large to be sent."""
        raw, topic = outgoing.raw, outgoing.topic
        outgoing.epoch = snapshot.epoch
        outgoing.shared = (len(outgoing.targets) - 1) * len(raw) > COPIED_BYTES
        body = (self._producer.name, outgoing.seq) if outgoing.shared else None
        carried = raw if len(raw) <= CARRIED_BYTES and not body else None
        name = entry_prefix(len(outgoing.packed), len(raw), body=body, carried=carried)
        data = b"" if body or carried else raw
        operations: list[Operation] = [Check(self._tree.topic(topic), snapshot.epoch)]
        operations += [
            Create(f"{self._tree.queue(member.subscription, topic)}/{name}", data, sequence=True)
            for member in outgoing.targets
        ]
        if body is not None:
            operations.append(Create(self._tree.body(*body), raw))
        excess = transaction_size(operations) + 1024 - MAX_TRANSACTION  # 1024: the producer's own operation
        if excess > 0:
            copies = 1 if body else len(outgoing.targets)
            raise MessageTooLarge(topic, len(raw), max(0, len(raw) - excess // copies - 1), len(outgoing.targets))
        return operations

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
            names = [member.subscription for member in outgoing.targets]
            self._succeed(outgoing, dict(zip(names, paths, strict=not outgoing.shared)), stat.mzxid)

    def _succeed(self, outgoing: Outgoing, entries: dict[str, Any], zxid: int | None = None) -> None:
        if outgoing.shared and entries:
            queues = tuple(self._tree.queue(name, outgoing.topic) for name in entries)
            self._producer.bodies.add(outgoing.seq, len(outgoing.raw), queues)
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
                self._succeed(outgoing, {member.subscription: None for member in outgoing.targets})
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
                if error.index - 2 >= len(outgoing.targets):
                    self._producer.bodies.claim()  # the place for bodies was removed by hand
                    return None
                name = outgoing.targets[error.index - 2].subscription
                epoch, missing = self._missing.get(outgoing.topic, (-1, frozenset()))
                known = missing if epoch == outgoing.epoch else frozenset()
                self._missing[outgoing.topic] = outgoing.epoch, known | {name}
                return None
            return None if isinstance(error.cause, (BadVersion, NodeMissing)) else error.cause
        return error

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


def _unsent(error: ConnectionLost) -> ConnectionLost:
    """A connection lost while we prepared to send: whatever became of that request, the message is not stored."""
    return ConnectionLost(f"not stored: {error}", outcome_unknown=False)
