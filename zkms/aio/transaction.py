"""Consume and publish as one, on the event loop: the waiting is done by a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkms.aio.calls import Twin, awaited, passed_on
from zkms.aio.receipt import Receipt
from zkms.transaction import Transaction as ThreadedTransaction

if TYPE_CHECKING:
    from types import TracebackType


class Transaction(Twin[ThreadedTransaction]):
    """What bus.transaction() returns; it is committed at the end of its `async with` block, unless that raised.

    A commit that is cancelled goes on to its end: all of it is stored, or nothing.
    """

    ack = passed_on(ThreadedTransaction.ack)
    publish = passed_on(ThreadedTransaction.publish)
    abort = passed_on(ThreadedTransaction.abort)
    commit = awaited(ThreadedTransaction.commit)

    @property
    def receipts(self) -> list[Receipt]:
        """One for each publish, once it is committed."""
        return [Receipt(self._calls, receipt) for receipt in self._threaded.receipts]

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.commit()
        else:
            self.abort()
