"""Consume and publish as one: what is acked and what is published are stored together, or not at all.

The acks are written into the lanes' ledgers in the transaction that stores the messages. While that is under way,
nothing else is committed for these lanes. A lost reply is settled as for any publish: by the producer's number.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any

from zkms.checks import Codec
from zkms.consume.entry_state import EntryState
from zkms.consume.ownership import Ownership
from zkms.context import Context
from zkms.errors import AlreadyAcked, Closed, ConnectionLost, InvalidArgument, LostOwnership, TransactionFailed
from zkms.message.frame import Packed
from zkms.message.message import Message
from zkms.publish.delayed import DelayedFrame, due_at
from zkms.publish.many import result
from zkms.publish.receipt import Receipt
from zkms.publish.shipment import IfNobody, OutgoingFrame, Shipment
from zkms.tree.records import Ledger
from zkms.zookeeper.operations import Operation


class Transaction:
    """What bus.transaction() returns; it is committed at the end of its `with` block, unless that raised."""

    def __init__(
        self,
        context: Context,
        timeout: float,
        *,
        packed: Callable[..., Packed],
        options: Callable[..., Any],
        ship: Callable[[Shipment], None],
    ) -> None:
        self.receipts: list[Receipt] = []
        """One for each publish, once it is committed."""
        self._context = context
        self._packed = packed
        self._options = options
        self._ship = ship
        self._timeout = timeout
        self._messages: list[Message] = []
        self._frames: list[OutgoingFrame] = []
        self._over = False

    def ack(self, message: Message) -> None:
        """Done with, if all of the transaction is stored."""
        self._check()
        entry = message.entry
        if not isinstance(entry, EntryState):
            raise InvalidArgument(
                f"{message!r} is live: only messages of durable subscriptions and groups are acked here"
            )
        if entry.lane.owner is not self._context:
            raise InvalidArgument(f"{message!r} came from another bus: its ack cannot be part of this transaction")
        entry.check(message)
        if any(message.entry is other.entry and message.index == other.index for other in self._messages):
            raise AlreadyAcked(message.id)
        self._messages.append(message)

    def publish(
        self,
        topic: str,
        data: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int = 0,
        delay: float | None = None,
        at: float | datetime | None = None,
        ttl: float | None = None,
        id: str | None = None,
        to_self: bool = True,
        if_nobody: IfNobody = "raise",
        codec: Codec | None = None,
    ) -> None:
        """Published, if all of the transaction is stored."""
        self._check()
        due = due_at(delay, at, ttl, to_self=to_self)
        packed = self._packed(topic, data, key, headers, id, codec, priority=priority, ttl=ttl)
        options = self._options(topic, to_self, if_nobody)
        if due is None:
            self._frames.append(OutgoingFrame(topic, [packed], deadline=0.0, **options))
        else:
            self._frames.append(DelayedFrame(topic, [packed], due=due, drop=options["drop"], deadline=0.0))

    def _check(self) -> None:
        if self._over:
            raise Closed("the transaction is over: begin another one")

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()

    def abort(self) -> None:
        """Store nothing; the messages are still to be acked."""
        self._over = True

    def commit(self) -> None:
        """Store all of it, or raise: then nothing is stored, unless `ConnectionLost` says that this is unknown."""
        self._check()
        self._over = True
        deadline = time.monotonic() + self._timeout
        for frame in self._frames:
            frame.deadline = deadline
        with contextlib.ExitStack() as seized:
            acks = [seized.enter_context(_Acks(hold, lot, deadline)) for hold, lot in self._by_hold()]
            if not acks and not self._frames:
                return
            shipment = Shipment(self._frames, deadline, [operation for ack in acks for operation in ack.operations])
            self._ship(shipment)
            try:
                shipment.stored.result(max(0.0, deadline - time.monotonic()) + self._timeout)
            except TimeoutError as error:
                raise ConnectionLost("ZooKeeper did not answer in time") from error
            except TransactionFailed as error:
                for ack in acks:
                    ack.blame(error)
                raise error.cause from error
            for ack in acks:
                ack.stored = True
        self.receipts = [result(frame.future, deadline) for frame in self._frames]

    def _by_hold(self) -> list[tuple[Ownership, list[Message]]]:
        """In an order that is the same for all, so that two transactions never wait for each other."""
        lots: dict[str, tuple[Ownership, list[Message]]] = {}
        for message in self._messages:
            hold = message.entry.lane.hold
            lots.setdefault(hold.path, (hold, []))[1].append(message)
        return [lots[path] for path in sorted(lots)]


class _Acks:
    """The messages of one lane that are acked together."""

    def __init__(self, hold: Ownership, messages: list[Message], deadline: float) -> None:
        self.operations: list[Operation] = []
        self.stored = False
        self._hold = hold
        self._messages = messages
        self._deadline = deadline
        self._ledger: Ledger | None = None
        self._entries: list[EntryState] = list({id(m.entry): m.entry for m in messages}.values())

    def __enter__(self) -> _Acks:
        lane = self._messages[0].entry.lane
        if not self._hold.seize(self._deadline):
            raise LostOwnership(self._messages[0].id, str(lane.lost))
        try:
            lane.set_done(self._messages)
            self._ledger, self.operations = self._hold.operations([*self._entries])
        except BaseException:
            self._hold.let_go(None, [])
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._messages[0].entry.lane.end_transaction(self._messages, self.stored)
        self._hold.let_go(self._ledger if self.stored else None, [*self._entries])

    def blame(self, error: TransactionFailed) -> None:
        """`LostOwnership`, if this lane is why the transaction was refused."""
        if any(error.operation is each for each in self.operations) and self._hold.is_refused(error):
            raise LostOwnership(self._messages[0].id, str(self._hold.lost)) from error
