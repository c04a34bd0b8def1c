"""Waiting for a subscription's messages on the event loop: one wake-up for many, and callbacks in between.

What the threaded subscription tells on any thread (something came, a gap, an error) is noted there, and acted upon on
the loop, by the one who takes the messages.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Callable
from types import CoroutineType
from typing import Any

from zkms.aio.calls import Calls
from zkms.aio.message import OnError
from zkms.deliver.inbox import Gap
from zkms.deliver.live import OnGap
from zkms.message.message import Message

log = logging.getLogger("zkms.aio")
SLICE = 0.005
"""Seconds after which the loop is given to others, however many messages are at hand."""


class Waiting:
    """Used on the event loop, by one taker at a time."""

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

    def close(self) -> None:
        """Take no more: whoever waits is told so."""
        self.closed = True
        self._ring()

    def arrived(self) -> None:
        """On any thread, whenever something came: costs something only if the taker sleeps."""
        if self._asleep or self._calls.loop.is_closed():
            self._asleep = False
            self._calls.post(self._ring)

    def _ring(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    async def _arrival(self, ready: Callable[[], bool], deadline: float | None) -> bool:
        """Wait until something came, or `ready` says so at once; False if the deadline passed without."""
        loop = self._calls.loop
        self._bell = bell = loop.create_future()
        self._asleep = True  # before the look below: what comes after it rings
        timer = None
        try:
            if ready() or self.closed:
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
