"""From a live subscription's inbox to the event loop: entries in order.

Nearly every entry is unpacked on the loop, which takes microseconds. What may have to wait for ZooKeeper (a gap whose
flag is to be cleared, a stranger's znode to be set aside) is opened on a worker, and whoever asks next goes on waiting
for it, so that a cancelled wait loses nothing.
"""

from __future__ import annotations

import time
from concurrent.futures import Future

from zkms.aio.calls import Calls
from zkms.aio.message import OnError
from zkms.aio.waiting import SLICE, Waiting
from zkms.deliver.live import OnGap, Subscription
from zkms.message.decode import DecodedEntry


class Stream(Waiting):
    """Takes what a threaded subscription has read."""

    def __init__(
        self, calls: Calls, topic: str, on_gap: OnGap | None, on_error: OnError | None, *, pulled: bool
    ) -> None:
        super().__init__(calls, topic, on_gap, on_error, pulled=pulled)
        self._source: Subscription | None = None
        self._opened: Future[DecodedEntry | None] | None = None

    def attach(self, source: Subscription) -> None:
        """Begin to take."""
        self._source = source
        source.inbox.arrived = self.arrived

    def _is_ready(self) -> bool:
        source = self._source
        if source is not None and source.inbox.closed:  # by whoever closed the bus without us
            self.close()
        return source is None or source.inbox.ready

    async def next(self, deadline: float | None) -> DecodedEntry | None:
        """The next entry that holds messages; None at the deadline, or when closed. Cancelling it loses nothing."""
        while self._source is not None and not self.closed:
            unpacked = self.next_at_once() if self._opened is None else await self._open(self._opened)
            if unpacked is not None:
                return unpacked
            if self._opened is None and not await self._arrival(self._is_ready, deadline):
                return None
        return None

    def next_at_once(self) -> DecodedEntry | None:
        """The next entry that holds messages, if it is here and nothing has to be waited for."""
        source = self._source
        if source is None or self.closed or self._opened is not None or (item := source.inbox.take(0)) is None:
            return None
        unpacked = source.unpack_at_once(item)
        if unpacked is None:
            self._opened = self._calls.submit(source.unpack, item)
        return unpacked

    async def _open(self, opened: Future[DecodedEntry | None]) -> DecodedEntry | None:
        await self._calls.finished(opened)
        self.rest_at = time.monotonic() + SLICE
        await self.tell()
        self._opened = None  # last, so that a cancelled wait is taken up by the next one
        return opened.result()
