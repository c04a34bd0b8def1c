"""publish_many for asyncio: messages are packed on the event loop a slice at a time, frames are sent by a thread."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterable, Iterable
from concurrent.futures import CancelledError, Future
from typing import Any

from zkms.aio.calls import Calls
from zkms.aio.outbox import late
from zkms.errors import ConnectionLost, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.options import Kind
from zkms.publish.packer import Packer
from zkms.publish.publisher import PackOne, Publisher, note_stored
from zkms.publish.receipt import Receipt

log = logging.getLogger("zkms.aio")
SLICE = 0.005
"""Seconds after which others on the loop may run."""
AT_A_TIME = 64
"""Messages that are packed between two looks at the clock."""


class Bulk:
    """The frames of one call."""

    def __init__(self, publisher: Publisher, calls: Calls, kind: Kind, pack: PackOne, allowed: float) -> None:
        self._publisher = publisher
        self._calls = calls
        self._kind = kind
        self._pack = pack
        self._allowed = allowed
        self._deadline = time.monotonic() + allowed
        self._packer = Packer((0, 0))
        self._futures: list[Future[Receipt]] = []
        self._checked = 0
        self._sending: Future[None] | None = None
        self._taken = itertools.count()
        """Counts the messages."""

    async def take(self, messages: Iterable[Any] | AsyncIterable[Any]) -> None:
        """Pack and send them, with a pause for others on the loop now and then."""
        await self._send([])
        await self._sent()
        if isinstance(messages, AsyncIterable):
            async for data in messages:
                for frame in self._packer.fill((self._pack(data, next(self._taken)),)):
                    await self._send(frame)
        else:
            packed = map(self._pack, messages, self._taken)
            rest_at = time.monotonic() + SLICE
            while some := [*itertools.islice(packed, AT_A_TIME)]:
                for frame in self._packer.fill(some):
                    await self._send(frame)
                    rest_at = time.monotonic() + SLICE
                if time.monotonic() > rest_at:
                    await asyncio.sleep(0)
                    rest_at = time.monotonic() + SLICE
        if self._packer.packed:
            await self._send(self._packer.packed)

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
            self._futures.append(self._publisher.send(self._kind, frame, self._deadline))
        self._packer.budget = self._publisher.budget(self._kind, self._deadline)

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
        note_stored(error, self._futures, next(self._taken))

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
