"""publish_many for asyncio: messages are packed on the event loop a slice at a time, frames are sent by a thread."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterable, Callable, Iterable
from concurrent.futures import CancelledError, Future
from typing import Any

from zkms.aio.calls import Calls
from zkms.aio.outbox import late
from zkms.bus import Bus
from zkms.errors import ConnectionLost, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.many import stored
from zkms.publish.receipt import Receipt
from zkms.publish.shipment import IfNobody

log = logging.getLogger("zkms.aio")
SLICE = 0.005
"""Seconds after which others on the loop may run."""


class Bulk:
    """The frames of one call."""

    def __init__(
        self,
        bus: Bus,
        calls: Calls,
        topic: str,
        to_self: bool,
        if_nobody: IfNobody,
        timeout: float | None,
        due: float | None = None,
    ) -> None:
        self._bus = bus
        self._calls = calls
        self._where = topic, to_self, if_nobody
        self._due = due
        self._allowed = bus._allowed(timeout)
        self._deadline = time.monotonic() + self._allowed
        self._largest = self._most = 0
        """Bytes and messages that the next frame may have."""
        self._futures: list[Future[Receipt]] = []
        self._checked = 0
        self._sending: Future[None] | None = None
        self.given = 0
        """Messages taken so far."""

    async def take(self, messages: Iterable[Any], pack: Callable[[Any], Packed]) -> None:
        """Pack and send them, with a pause for others on the loop now and then."""
        await self._send([])
        await self._sent()
        frame: list[Packed] = []
        size = given = 0
        rest_at = time.monotonic() + SLICE
        for data in messages:
            self.given = given = given + 1
            if not given & 63 and time.monotonic() > rest_at:  # seldom: this runs for every message
                await asyncio.sleep(0)
                rest_at = time.monotonic() + SLICE
            packed = pack(data)
            added = packed.size
            if frame and (size + added > self._largest or len(frame) >= self._most):
                await self._send(frame)
                frame, size = [], 0
                rest_at = time.monotonic() + SLICE
            frame.append(packed)
            size += added
        if frame:
            await self._send(frame)

    async def take_slowly(self, messages: AsyncIterable[Any], pack: Callable[[Any], Packed]) -> None:
        """The same of an asynchronous iterable."""
        await self._send([])
        await self._sent()
        frame: list[Packed] = []
        size = 0
        async for data in messages:
            self.given += 1
            packed = pack(data)
            if frame and (size + packed.size > self._largest or len(frame) >= self._most):
                await self._send(frame)
                frame, size = [], 0
            frame.append(packed)
            size += packed.size
        if frame:
            await self._send(frame)

    async def _send(self, frame: list[Packed]) -> None:
        """Send a frame, if there is one, and find out what the next may have: while that is packed."""
        await self._sent()
        self._deadline = time.monotonic() + self._allowed
        self._sending = self._calls.submit_send(self._transmit, frame)

    async def _sent(self) -> None:
        """Wait until the last frame is on its way; raise if that, or one before, has failed."""
        if self._sending is not None:
            await asyncio.wrap_future(self._sending)
        while self._checked < len(self._futures) and self._futures[self._checked].done():
            _result(self._futures[self._checked])
            self._checked += 1

    def _transmit(self, frame: list[Packed]) -> None:
        """On the thread for publishing, which waits while too much is under way."""
        if frame:
            self._futures.append(self._bus._send(self._where[0], frame, *self._where[1:], self._deadline, self._due))
        self._largest, self._most = self._bus._frame_budget(self._where[0], self._deadline, self._due)

    async def end(self) -> list[Receipt]:
        """Wait for everything: a receipt for each frame."""
        await self._sent()
        return [await self._answer(future) for future in self._futures]

    async def give_up(self, error: ZkmsError) -> None:
        """Note in the error how many messages were stored, when that is known of those under way."""
        if self._sending is not None:
            await self._calls.finished(self._sending)
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
