"""A live subscription on the event loop: handlers in order, or get, fetch and `async for`."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from types import CoroutineType
from typing import Any, cast

from zkms.aio.calls import Calls, must_pass, returned
from zkms.aio.feeds import LiveFeed
from zkms.aio.message import Handler, Message
from zkms.aio.reading import Reading
from zkms.deliver.live import Subscription as ThreadedSubscription
from zkms.errors import ZkmsError
from zkms.message.decode import DecodedEntry, Undecodable
from zkms.message.message import LiveEntry
from zkms.message.message import Message as ThreadedMessage
from zkms.subscribe.options import SubscribeOptions


class Subscription(Reading[ThreadedSubscription, LiveFeed]):
    """What bus.subscribe() returns: `await` it, use it in `async with`, or go straight into `async for`.

    Subscribing begins at once. When an `await` of it, or the first step of an `async with` or `async for`, has
    returned, nothing is missed any more. If that is cancelled, the subscription is given up. An `async for` that goes
    straight into what bus.subscribe() returns gives it up at its end too, also by `break`: nobody else would.
    """

    def __init__(
        self,
        calls: Calls,
        options: SubscribeOptions,
        subscribe: Callable[[SubscribeOptions], ThreadedSubscription],
        *,
        after: Future[Any] | None,
    ) -> None:
        self._manual = options.ack == "manual"
        self._unpacked: deque[ThreadedMessage | Undecodable] = deque()
        self._entry: LiveEntry
        self._iterated: list[LiveEntry] = []
        """What `async for` acks when it comes back."""
        super().__init__(calls, options, LiveFeed(calls, options), subscribe, after=after)

    async def unsubscribe(self, timeout: float = 5.0) -> None:
        """Give the subscription up: finish the message in flight, then remove the registration and the queue.

        A handler that is still busy after `timeout` seconds is cancelled. When this call is cancelled, it goes on in
        the background.
        """
        await super().close(timeout)

    close = unsubscribe

    # -- pull ----------------------------------------------------------------------------------------------------

    async def fetch(self, count: int, timeout: float | None = None) -> list[Message]:
        """Up to `count` messages: waits for the first as get() does, and takes what is there besides."""
        timeout = self._check_fetch(count, timeout)
        messages, entries = await self._take(count, timeout)
        if not self._manual:
            for entry in entries:
                entry.finish()
        return messages

    async def __anext__(self) -> Message:
        iterated, self._iterated = self._iterated, []
        for entry in iterated:
            entry.finish()
        if not self._opened.done():
            await self._ready()
        self._check_pull()
        messages, entries = await self._take(1, None)
        if not messages:
            raise StopAsyncIteration
        if not self._manual:
            self._iterated = entries
        return messages[0]

    async def _take(self, count: int, timeout: float | None) -> tuple[list[Message], list[LiveEntry]]:
        """Up to `count` messages, and the entries of which that were the last ones.

        From the first message taken to the return there is no await, so no cancellation can come in between.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        taken: list[Message] = []
        entries: list[LiveEntry] = []
        if not await self._turn(timeout):
            return taken, entries
        try:
            await self._feed.rest()
            while not taken and (self._unpacked or self._load(await self._feed.next(deadline))):
                self._gather(count, taken, entries)
                if not taken:
                    await self._feed.tell()
        finally:
            self._taking.release()
        return taken, entries

    def _load(self, unpacked: DecodedEntry | None) -> bool:
        if unpacked is None:
            return False
        self._entry = unpacked.entry
        self._unpacked.extend(unpacked.items)
        return True

    def _gather(self, count: int, taken: list[Message], entries: list[LiveEntry]) -> None:
        """Take what is at hand, up to the first that cannot be decoded: its callback comes between the two."""
        while self._unpacked:
            item = self._unpacked[0]
            if isinstance(item, ThreadedMessage):
                self._unpacked.popleft()
                taken.append(cast(Message, item))
                if not self._unpacked:
                    entries.append(self._entry)
            elif taken:
                return
            else:
                self._skip(self._unpacked.popleft())
                return
            if len(taken) == count or not (self._unpacked or self._load(self._feed.next_at_once())):
                return

    def _skip(self, problem: ThreadedMessage | Undecodable) -> None:
        if self._source is not None and isinstance(problem, Undecodable):
            self._source.skip(self._entry, problem)
        if not self._unpacked and not self._manual:
            self._entry.finish()  # those before it were taken, and done with, before

    # -- push ----------------------------------------------------------------------------------------------------

    async def _deliver(self, source: ThreadedSubscription, handler: Handler) -> None:
        feed = self._feed
        while not feed.closed:
            try:
                unpacked = await feed.next(None)
            except ZkmsError as error:
                await self._report(source, error, None)
                continue
            if unpacked is not None and await self._handle(source, handler, unpacked) and not self._manual:
                unpacked.entry.finish()

    async def _handle(self, source: ThreadedSubscription, handler: Handler, unpacked: DecodedEntry) -> bool:
        """Deliver the messages of an entry to the handler; False if the subscription was closed in the middle."""
        feed = self._feed
        rest_at = feed.rest_at
        for item in unpacked.items:
            if feed.closed:
                return False
            if item.__class__ is not Message:  # as cheap as it gets: this runs for every message
                source.skip(unpacked.entry, item)  # type: ignore[arg-type]
                await feed.tell()
                continue
            try:
                result = handler(item)
                if result is not None:
                    if result.__class__ is CoroutineType:
                        await result
                    else:
                        await returned(result)
            except BaseException as error:
                if must_pass(error):
                    raise
                told = error if isinstance(error, Exception) else RuntimeError(repr(error))
                await self._report(source, told, item)  # a live message is not repeated
                if isinstance(item, Message) and item.is_request:
                    item.reply(error=f"{type(error).__name__}: {error}")
            if time.monotonic() > rest_at:
                await feed.rest()
                rest_at = feed.rest_at
        return True

    async def _report(self, source: ThreadedSubscription, error: Exception, message: ThreadedMessage | None) -> None:
        source.report(error, message)
        await self._feed.tell()
