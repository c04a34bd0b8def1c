"""Consume and publish as one, on the event loop: the waiting is done by a worker."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from zkms.aio.calls import Calls
from zkms.aio.message import Message
from zkms.aio.receipt import Receipt
from zkms.checks import Codec
from zkms.transaction import Transaction as ThreadedTransaction

if TYPE_CHECKING:
    from types import TracebackType

    from zkms.publish.shipment import IfNobody


class Transaction:
    """What bus.transaction() returns; it is committed at the end of its `async with` block, unless that raised.

    A commit that is cancelled goes on to its end: all of it is stored, or nothing.
    """

    def __init__(self, calls: Calls, transaction: ThreadedTransaction) -> None:
        self._calls = calls
        self._transaction = transaction

    @property
    def receipts(self) -> list[Receipt]:
        """One for each publish, once it is committed."""
        return [Receipt(receipt, self._calls) for receipt in self._transaction.receipts]

    def ack(self, message: Message) -> None:
        """Done with, if all of the transaction is stored."""
        self._transaction.ack(message)

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
        self._transaction.publish(
            topic,
            data,
            key=key,
            headers=headers,
            priority=priority,
            delay=delay,
            at=at,
            ttl=ttl,
            id=id,
            to_self=to_self,
            if_nobody=if_nobody,
            codec=codec,
        )

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.commit()
        else:
            self.abort()

    def abort(self) -> None:
        """Store nothing; the messages are still to be acked."""
        self._transaction.abort()

    async def commit(self) -> None:
        """Store all of it, or raise: then nothing is stored, unless `ConnectionLost` says that this is unknown."""
        await self._calls.run(self._transaction.commit)
