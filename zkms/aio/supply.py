"""From a consumer's partitions to the event loop: messages that may be delivered, in order."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future

from zkms.aio.calls import Calls
from zkms.aio.message import OnError
from zkms.aio.waiting import Waiting
from zkms.consume.consumer import Consumer
from zkms.deliver.live import OnGap
from zkms.message.message import Message


class Supply(Waiting):
    """Takes what a threaded consumer may deliver."""

    def __init__(
        self, calls: Calls, topic: str, on_gap: OnGap | None, on_error: OnError | None, *, pulled: bool
    ) -> None:
        super().__init__(calls, topic, on_gap, on_error, pulled=pulled)
        self._source: Consumer | None = None
        self._heard = False
        """Whether anything came since the last look."""

    def attach(self, source: Consumer) -> None:
        """Begin to take."""
        self._source = source
        source.listen(self.arrived)

    def arrived(self) -> None:
        """On any thread, perhaps with the consumer's lock held."""
        self._heard = True  # before the look at who sleeps, who looks at this after lying down
        super().arrived()

    def _has_heard(self) -> bool:
        if self._source is not None and self._source.closed:  # by whoever closed the bus without us
            self.close()
        return self._heard

    async def next(self, most: int, deadline: float | None) -> list[Message]:
        """The next messages, at least one and up to `most`; none at the deadline, or when closed.

        Cancelling it loses nothing.
        """
        source = self._source
        while source is not None and not self.closed:
            self._heard = False
            some, stored = source.take_at_once(most)
            await self._tell_first(source, some)
            if some and (stored is None or await self._is_reserved(source, some, stored)):
                return some
            if not some:
                due = source.next_due()
                until = None if due is None else time.monotonic() + due
                first = min((each for each in (until, deadline) if each is not None), default=None)
                if not await self._arrival(self._has_heard, first) and first == deadline:
                    return []
        return []

    def next_at_once(self, most: int) -> list[Message]:
        """The next messages, if they are here and nothing has to be waited for."""
        source = self._source
        if source is None or self.closed or self._told:
            return []
        some, stored = source.take_at_once(most)
        if self._told or (stored is not None and not _is_stored(stored)):
            source.put_back(some)
            return []
        return some

    async def tell(self) -> None:
        """Call the callbacks that are due; then the gaps among what they told of need not stay."""
        await super().tell()
        if self._source is not None:
            self._source.told()

    async def _tell_first(self, source: Consumer, taken: list[Message]) -> None:
        """Callbacks come before the messages that were taken after what they tell of."""
        try:
            await self.tell()
        except asyncio.CancelledError:
            source.put_back(taken)
            raise

    async def _is_reserved(self, source: Consumer, taken: list[Message], stored: Future[None]) -> bool:
        """Wait until it is stored that a message is delivered; False if its partition was lost meanwhile."""
        try:
            await self.until(stored)
        except asyncio.CancelledError:
            source.put_back(taken)
            raise
        if self.closed:
            source.put_back(taken)
        return not self.closed and _is_stored(stored)

    async def until(self, stored: Future[None]) -> None:
        """Wait until it is stored, or will never be, or all is closed."""
        stored.add_done_callback(lambda _: self.arrived())
        while not stored.done() and not self.closed:
            await self._arrival(stored.done, None)


def _is_stored(stored: Future[None]) -> bool:
    return stored.done() and not stored.cancelled() and stored.exception() is None
