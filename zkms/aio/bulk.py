"""publish_many for asyncio: messages are packed on the event loop a slice at a time, frames are sent by a thread."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from concurrent.futures import CancelledError, Future
from typing import Any

from zkms.aio.calls import Calls
from zkms.aio.outbox import late
from zkms.bulk import stored
from zkms.bus import Bus, IfNobody
from zkms.errors import ConnectionLost, ZkmsError
from zkms.frame import Packed
from zkms.receipt import Receipt

log = logging.getLogger("zkms.aio")
SLICE = 256
"""Messages that are packed before others on the loop may run."""


class Bulk:
    """The frames of one call."""

    def __init__(
        self, bus: Bus, calls: Calls, topic: str, to_self: bool, if_nobody: IfNobody, timeout: float | None
    ) -> None:
        self._bus = bus
        self._calls = calls
        self._where = topic, to_self, if_nobody
        self._allowed = bus._allowed(timeout)
        self._deadline = time.monotonic() + self._allowed
        self._frame: list[Packed] = []
        self._size = 0
        self._budget = 0, 0
        """Bytes and messages that the next frame may have; found out when the first is to be sent."""
        self._futures: list[Future[Receipt]] = []
        self._checked = 0
        self.given = 0
        """Messages taken so far."""

    def add(self, packed: Packed) -> bool:
        """Take a message; False if those before it have to be sent first."""
        largest, most = self._budget
        size = self._size + packed.size
        if (size > largest and self._frame) or len(self._frame) >= most:
            return False
        self._frame.append(packed)
        self._size = size
        return True

    async def send(self) -> None:
        """Send what was taken, and find out what the next frame may have."""
        frame, self._frame, self._size = self._frame, [], 0
        self._deadline = time.monotonic() + self._allowed
        await asyncio.wrap_future(self._calls.submit_send(self._transmit, frame))
        while self._checked < len(self._futures) and self._futures[self._checked].done():
            _result(self._futures[self._checked])
            self._checked += 1

    def _transmit(self, frame: list[Packed]) -> None:
        """On the thread for publishing, which waits while too much is under way."""
        if frame:
            self._futures.append(self._bus._send(self._where[0], frame, *self._where[1:], self._deadline))
        self._budget = self._bus._frame_budget(self._where[0], self._deadline)

    async def end(self) -> list[Receipt]:
        """Send the rest, and wait for everything: a receipt for each frame."""
        if self._frame:
            await self.send()
        return [await self._answer(future) for future in self._futures]

    async def give_up(self, error: ZkmsError) -> None:
        """Note in the error how many messages were stored, when that is known of those under way."""
        for future in self._futures:
            try:
                await self._answer(future)
            except ZkmsError as other:
                log.debug("another frame of the same call failed: %s", other)
        error.add_note(f"{stored(self._futures)} of the {self.given} messages taken were stored")

    async def _answer(self, future: Future[Receipt]) -> Receipt:
        if not future.done():
            try:
                async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                    await self._calls.finished(future)
            except TimeoutError as error:
                if future.cancel():  # recovery will not send it again
                    raise late(sent=True) from error
        return _result(future)


def _result(future: Future[Receipt]) -> Receipt:
    try:
        return future.result()
    except CancelledError as error:  # by us, when it was waited for before
        raise ConnectionLost("ZooKeeper did not answer in time") from error


async def slices(messages: Iterable[Any] | AsyncIterable[Any]) -> AsyncGenerator[list[Any], None]:
    """A few messages at a time, with a pause between for others on the loop."""
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield [message]
        return
    iterator = iter(messages)
    while some := list(itertools.islice(iterator, SLICE)):
        yield some
        await asyncio.sleep(0)
