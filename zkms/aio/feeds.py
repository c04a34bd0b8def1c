"""From a threaded subscription to the event loop: one wake-up for many messages, and callbacks in between.

What the threaded subscription tells on any thread (something came, a gap, an error) is noted there, and acted upon on
the loop, by the one who takes the messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import msgspec

from zkms.aio.calls import SLICE, Calls, must_pass, returned
from zkms.consume.consumer import Consumer
from zkms.deliver.inbox import Gap
from zkms.deliver.live import Subscription
from zkms.message.decode import DecodedEntry
from zkms.message.message import Message
from zkms.subscribe.options import SubscribeOptions

log = logging.getLogger("zkms.aio")
S = TypeVar("S")


class Feed(Generic[S]):
    """Takes what a threaded subscription has read. Used on the event loop, by one taker at a time."""

    def __init__(self, calls: Calls, options: SubscribeOptions) -> None:
        self._calls = calls
        self._pulled = options.handler is None
        """Whether a taker may be cancelled while a callback that has begun must go on."""
        self._topic = options.topic
        self._callbacks = {"on_gap": options.on_gap, "on_error": options.on_error}
        self._source: S | None = None
        self._told: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        """Callbacks that are due: heard of on any thread, called on the loop."""
        self._telling: asyncio.Future[Any] | None = None
        """A callback that has begun, where whoever waits for it may be cancelled."""
        self._asleep = False
        self._bell: asyncio.Future[None] | None = None
        self.rest_at = time.monotonic() + SLICE
        """When others on the loop have waited long enough."""
        self.closed = False

    def threaded_options(self, options: SubscribeOptions) -> SubscribeOptions:
        """The options of the threaded subscription: what it tells is noted on its threads, and told on the loop."""
        return msgspec.structs.replace(options, handler=None, on_gap=self.on_gap, on_error=self.on_error)

    def attach(self, source: S) -> None:
        """Begin to take."""
        raise NotImplementedError

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


class LiveFeed(Feed[Subscription]):
    """Takes entries, in order.

    Nearly every entry is decoded on the loop, which takes microseconds. What may have to wait for ZooKeeper (a gap
    whose full flag is to be cleared, another program's znode to be set aside) is decoded on a worker, and whoever asks
    next goes on waiting for it, so that a cancelled wait loses nothing.
    """

    def __init__(self, calls: Calls, options: SubscribeOptions) -> None:
        super().__init__(calls, options)
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


class ConsumerFeed(Feed[Consumer]):
    """Takes messages that may be delivered, in order."""

    def __init__(self, calls: Calls, options: SubscribeOptions) -> None:
        super().__init__(calls, options)
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
            if some and (stored is None or await self._is_in_flight(source, some, stored)):
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

    async def _is_in_flight(self, source: Consumer, taken: list[Message], stored: Future[None]) -> bool:
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
