"""A durable subscription, or a member of a group, on the event loop: handlers in order, or get, fetch, `async for`.

Messages are taken from the threaded consumer without waiting; it rings when there may be more. What it keeps of them
(attempts, time to run, order within a key) is kept there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, cast

from zkms.aio.calls import Calls, must_pass, returned
from zkms.aio.feeds import ConsumerFeed
from zkms.aio.message import Handler, Message, Stored
from zkms.aio.reading import Reading
from zkms.checks import check_seconds
from zkms.consume.consumer import Consumer as ThreadedConsumer
from zkms.errors import NotSubscribed
from zkms.subscribe.options import SubscribeOptions


class Consumer(Reading[ThreadedConsumer, ConsumerFeed]):
    """What bus.subscribe() returns for a name or a group: `await` it, use it in `async with`, or in `async for`.

    Subscribing begins at once; if the `await` is cancelled, it is closed. close() keeps its place, unsubscribe() gives
    it up. An `async for` that goes straight into what bus.subscribe() returns closes it at its end.
    """

    def __init__(
        self,
        calls: Calls,
        options: SubscribeOptions,
        subscribe: Callable[[SubscribeOptions], ThreadedConsumer],
        *,
        after: Future[Any] | None,
    ) -> None:
        self._ack = options.ack
        self._iterated: Message | None = None
        """What `async for` acks when it comes back."""
        super().__init__(calls, options, ConsumerFeed(calls, options), subscribe, after=after)

    @property
    def kind(self) -> str:
        """ "durable" or "group"."""
        return self._standing.kind

    @property
    def partitions(self) -> list[int]:
        """The partitions that are ours to read, now."""
        return [] if self._source is None else self._source.partitions

    async def close(self, timeout: float = 5.0) -> None:
        """Stop reading, and keep the place: finish the message in flight, give the rest back to be delivered again.

        A handler that is still busy after `timeout` seconds is cancelled, and its message is delivered again. When this
        call is cancelled, it goes on in the background.
        """
        await super().close(timeout)

    async def unsubscribe(self, timeout: float = 5.0) -> None:
        """Give the subscription up, with all that waits in it. A group goes with its last member."""
        timeout = check_seconds("timeout", timeout)
        self._calls.check_loop()
        await self._stood()
        if self._source is None or self._ending is not None or self._abandoned:
            raise NotSubscribed(self.topic)
        await self._end(self._source.unsubscribe, timeout)

    # -- pull ----------------------------------------------------------------------------------------------------

    async def fetch(self, count: int, timeout: float | None = None) -> list[Message]:
        """Up to `count` messages: waits for the first as get() does, and takes what is there besides."""
        timeout = self._check_fetch(count, timeout)
        messages = await self._take(count, timeout)
        if self._ack == "auto" and self._source is not None:
            for message in messages:
                self._source.finish(message)
        return messages

    def ack(self, messages: Iterable[Message]) -> Stored:
        """Ack many messages at once, which takes about as long as one; await the result to know that it is stored."""
        started = self._standing.start_acks(messages)
        return Stored(*((stored, message.entry, message) for message, stored in started))

    async def __anext__(self) -> Message:
        iterated, self._iterated = self._iterated, None
        if iterated is not None and self._source is not None:
            self._source.finish(iterated)
        if not self._opened.done():
            await self._ready()
        self._check_pull()
        messages = await self._take(1, None)
        if not messages:
            raise StopAsyncIteration
        if self._ack != "manual":
            self._iterated = messages[0]
        return messages[0]

    async def _take(self, count: int, timeout: float | None) -> list[Message]:
        """Up to `count` messages. From the first one taken to the return there is no await to be cancelled in."""
        deadline = None if timeout is None else time.monotonic() + timeout
        taken: list[Message] = []
        if not await self._turn(timeout):
            return taken
        try:
            await self._feed.rest()
            some = await self._feed.next(count, deadline)
            while some:
                taken += cast(list[Message], some)
                some = self._feed.next_at_once(count - len(taken)) if len(taken) < count else []
        finally:
            self._taking.release()
        if not taken and self._source is not None and self._source.gone:
            raise NotSubscribed(self.topic)
        return taken

    # -- push ----------------------------------------------------------------------------------------------------

    async def _deliver(self, source: ThreadedConsumer, handler: Handler) -> None:
        feed = self._feed
        while some := await feed.next(1, None):
            message = some[0]
            source.begins(message)
            problem: BaseException | None = None
            try:
                await returned(handler(cast(Message, message)))
            except BaseException as error:
                if must_pass(error):
                    raise  # its message is not done with, so it is delivered again
                problem = error
            stored = source.ends(message, problem)
            await feed.tell()
            if stored is not None and not stored.done():
                await feed.until(stored)
            await feed.rest()
