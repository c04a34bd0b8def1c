"""From a subscription's inbox to the event loop: entries in order, one wake-up for many.

Nearly every entry is unpacked on the loop, which takes microseconds. What may have to wait for ZooKeeper (a gap whose
flag is to be cleared, a stranger's znode to be set aside) is opened on a worker, and whoever asks next goes on waiting
for it, so that a cancelled wait loses nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import CoroutineType
from typing import Any

from zkms.aio.calls import Calls
from zkms.inbox import Gap
from zkms.message import Message
from zkms.subscription import OnError, OnGap, Subscription
from zkms.unpacking import Unpacked

log = logging.getLogger("zkms.aio")
SLICE = 0.005
"""Seconds after which the loop is given to others, however many messages are at hand."""


class Stream:
    """Takes what a threaded subscription has read. Used on the event loop, by one taker at a time."""

    def __init__(
        self, calls: Calls, topic: str, on_gap: OnGap | None, on_error: OnError | None, *, pulled: bool
    ) -> None:
        """`pulled`: whoever takes may be cancelled, but callbacks that have begun go on."""
        self._calls = calls
        self._pulled = pulled
        self._topic = topic
        self._callbacks = {"on_gap": on_gap, "on_error": on_error}
        self._told: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        """Callbacks that are due: heard of on any thread, called on the loop."""
        self._telling: asyncio.Future[Any] | None = None
        """A callback that has begun, where whoever waits for it may be cancelled."""
        self._source: Subscription | None = None
        self._opened: Future[Unpacked | None] | None = None
        self._asleep = False
        self._bell: asyncio.Future[None] | None = None
        self.rest_at = time.monotonic() + SLICE
        """When others on the loop have waited long enough."""
        self.closed = False

    def on_gap(self, gap: Gap) -> None:
        """For the threaded subscription: note it."""
        self._note("on_gap", gap)

    def on_error(self, error: Exception, message: Message | None) -> None:
        """For the threaded subscription: note it."""
        self._note("on_error", error, message)

    def _note(self, name: str, *args: object) -> None:
        callback = self._callbacks[name]
        if callback is not None:
            self._told.append((callback, args))

    def attach(self, source: Subscription) -> None:
        """Begin to take."""
        self._source = source
        source.inbox.arrived = self._arrived

    def close(self) -> None:
        """Take no more: whoever waits is told so."""
        self.closed = True
        self._ring()

    # -- waiting -------------------------------------------------------------------------------------------------

    def _arrived(self) -> None:
        """On the reader's thread, at every entry: costs something only if the taker sleeps."""
        if self._asleep or self._calls.loop.is_closed():
            self._asleep = False
            self._calls.post(self._ring)

    def _ring(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    async def _arrival(self, source: Subscription, deadline: float | None) -> bool:
        """Wait for an entry; False if the deadline passed without one."""
        loop = self._calls.loop
        self._bell = bell = loop.create_future()
        self._asleep = True  # before the look below: what comes after it rings
        timer = None
        try:
            if source.inbox.closed:  # by whoever closed the bus without us
                self.close()
            if source.inbox.ready or self.closed:
                return True
            if deadline is not None:
                if time.monotonic() >= deadline:
                    return False
                timer = loop.call_later(deadline - time.monotonic(), self._ring)
            await bell
            self.rest_at = time.monotonic() + SLICE
            return True
        finally:
            self._asleep = False
            self._bell = None
            if timer is not None:
                timer.cancel()

    async def rest(self) -> None:
        """Let others run, if it is time."""
        if time.monotonic() > self.rest_at:
            await asyncio.sleep(0)
            self.rest_at = time.monotonic() + SLICE

    # -- taking --------------------------------------------------------------------------------------------------

    async def next(self, deadline: float | None) -> Unpacked | None:
        """The next entry that holds messages; None at the deadline, or when closed. Cancelling it loses nothing."""
        source = self._source
        if source is None:
            return None
        while not self.closed:
            unpacked = self.next_at_once() if self._opened is None else await self._open(self._opened)
            if unpacked is not None:
                return unpacked
            if self._opened is None and not await self._arrival(source, deadline):
                return None
        return None

    def next_at_once(self) -> Unpacked | None:
        """The next entry that holds messages, if it is here and nothing has to be waited for."""
        source = self._source
        if source is None or self.closed or self._opened is not None or (item := source.inbox.take(0)) is None:
            return None
        unpacked = source.unpack_at_once(item)
        if unpacked is None:
            self._opened = self._calls.submit(source.unpack, item)
        return unpacked

    async def _open(self, opened: Future[Unpacked | None]) -> Unpacked | None:
        await self._calls.finished(opened)
        self.rest_at = time.monotonic() + SLICE
        await self.tell()
        self._opened = None  # last, so that a cancelled wait is taken up by the next one
        return opened.result()

    async def tell(self) -> None:
        """Call the callbacks that are due, in order.

        One that has begun comes to its end: a gap must not get lost because whoever happened to wait for the next
        message was cancelled. The next one waits on for it.
        """
        while self._told or self._telling is not None:
            if self._telling is None:
                callback, args = self._told.popleft()
                if not self._pulled:
                    await self._call(callback, args)
                    continue
                self._telling = asyncio.ensure_future(self._call(callback, args))
            telling = self._telling
            await asyncio.wait([telling])
            if self._telling is telling:
                self._telling = None

    async def _call(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        try:
            await returned(callback(*args))
        except BaseException as error:
            if must_pass(error):
                raise
            log.exception("%s of %r raised", callback, self._topic)


def must_pass(error: BaseException) -> bool:
    """Whether what a user's callback raised is for the event loop, and not an error to be told: we are cancelled."""
    if isinstance(error, asyncio.CancelledError):  # or only something that the callback awaited
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, SystemExit | KeyboardInterrupt | GeneratorExit)


async def returned(result: Any) -> Any:
    """What a callback returned, awaited if it can be."""
    if result is not None and (result.__class__ is CoroutineType or inspect.isawaitable(result)):
        return await result
    return result
