"""Consume and publish in one transaction: acks and published messages are stored together, or not at all.

The transaction that stores the messages also writes the acks into the partitions' ledgers. While it is in flight,
nothing else is committed for these partitions. After a lost reply the producer's number says whether it was stored, as
for any publish.
"""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import Any, Unpack

from zkms.checks import check_options
from zkms.consume.entry_state import EntryState
from zkms.consume.ledger_commits import Ownership
from zkms.context import Context
from zkms.errors import AlreadyAcked, Closed, ConnectionLost, InvalidArgument, LostOwnership, TransactionFailed
from zkms.message.message import Message
from zkms.publish.options import PublishOptions
from zkms.publish.publisher import Publisher, result
from zkms.publish.receipt import Receipt
from zkms.publish.shipment import OutgoingFrame, Shipment
from zkms.tree.records import Ledger
from zkms.zookeeper.operations import Operation


class Transaction:
    """What bus.transaction() returns; it is committed at the end of its `with` block, unless the block raised."""

    def __init__(self, context: Context, publisher: Publisher, timeout: float) -> None:
        self.receipts: list[Receipt] = []
        """One for each publish, after the commit."""
        self._context = context
        self._publisher = publisher
        self._timeout = timeout
        self._messages: list[Message] = []
        self._frames: list[OutgoingFrame] = []
        self._over = False

    def ack(self, message: Message) -> None:
        """Ack the message when the transaction is committed."""
        self._check()
        entry = message.entry
        if not isinstance(entry, EntryState):
            raise InvalidArgument(
                f"{message!r} is live: only messages of durable subscriptions and groups are acked here"
            )
        if entry.dispatcher.owner is not self._context:
            raise InvalidArgument(f"{message!r} came from another bus: its ack cannot be part of this transaction")
        entry.check(message)
        if any(message.entry is other.entry and message.index == other.index for other in self._messages):
            raise AlreadyAcked(message.id)
        self._messages.append(message)

    def publish(self, topic: str, data: Any, **options: Unpack[PublishOptions]) -> None:
        """Publish the message when the transaction is committed."""
        self._check()
        check_options("publish", options, PublishOptions.__annotations__)
        self._frames.append(self._publisher.frame(topic, data, **options))

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
        """Store nothing; the messages stay unacked."""
        self._over = True

    def commit(self) -> None:
        """Store everything, or raise: then nothing is stored, unless `ConnectionLost` says that this is unknown."""
        self._check()
        self._over = True
        deadline = time.monotonic() + self._timeout
        for frame in self._frames:
            frame.deadline = deadline
        with contextlib.ExitStack() as paused:
            acks = [
                paused.enter_context(_Acks(ownership, messages, deadline))
                for ownership, messages in self._by_ownership()
            ]
            if not acks and not self._frames:
                return
            shipment = Shipment(self._frames, deadline, [operation for ack in acks for operation in ack.operations])
            self._publisher.ship(shipment)
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

    def _by_ownership(self) -> list[tuple[Ownership, list[Message]]]:
        """Group the messages by partition, in a fixed order so that two transactions never wait for each other."""
        by_path: dict[str, tuple[Ownership, list[Message]]] = {}
        for message in self._messages:
            ownership = message.entry.dispatcher.ownership
            by_path.setdefault(ownership.path, (ownership, []))[1].append(message)
        return [by_path[path] for path in sorted(by_path)]


class _Acks:
    """The messages of one partition that are acked together."""

    def __init__(self, ownership: Ownership, messages: list[Message], deadline: float) -> None:
        self.operations: list[Operation] = []
        self.stored = False
        self._ownership = ownership
        self._messages = messages
        self._deadline = deadline
        self._ledger: Ledger | None = None
        self._entries: list[EntryState] = list({id(m.entry): m.entry for m in messages}.values())

    def __enter__(self) -> _Acks:
        dispatcher = self._messages[0].entry.dispatcher
        if not self._ownership.pause(self._deadline):
            raise LostOwnership(self._messages[0].id, str(dispatcher.lost))
        try:
            dispatcher.set_done(self._messages)
            self._ledger, self.operations = self._ownership.operations([*self._entries])
        except BaseException:
            self._ownership.resume(None, [])
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self._messages[0].entry.dispatcher.end_transaction(self._messages, self.stored)
        self._ownership.resume(self._ledger if self.stored else None, [*self._entries])

    def blame(self, error: TransactionFailed) -> None:
        """Raise `LostOwnership` if this partition is why the transaction was refused."""
        if any(error.operation is each for each in self.operations) and self._ownership.is_refused(error):
            raise LostOwnership(self._messages[0].id, str(self._ownership.lost)) from error
