"""A subscription's life on the event loop: opened, awaited or entered, handled, closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from zkms.aio.calls import Calls
from zkms.aio.feeds import Feed
from zkms.aio.message import Handler, Message
from zkms.checks import check_seconds
from zkms.errors import Closed, InvalidArgument, NotSubscribed, ZkmsError
from zkms.subscribe.options import SubscribeOptions

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("zkms.aio")
A_MOMENT = 0.5
"""Seconds in which a loop that has cancelled its tasks is closed."""


class Threaded(Protocol):
    """What is needed of the subscription below."""

    id: str
    limit: int
    created: bool

    def close(self, timeout: float = 5.0) -> None:
        """Stop reading: a live subscription is given up, others keep their place."""
        ...


S = TypeVar("S", bound=Threaded)
F = TypeVar("F", bound=Feed[Any])


class Reading(Generic[S, F]):
    """What is common to all kinds: `await` it, use it in `async with`, or go straight into `async for`."""

    def __init__(
        self,
        calls: Calls,
        options: SubscribeOptions,
        feed: F,
        subscribe: Callable[[SubscribeOptions], S],
        *,
        after: Future[Any] | None,
    ) -> None:
        self.topic = options.topic
        self._calls = calls
        self._handler = options.handler
        self._feed = feed
        self._source: S | None = None
        self._lock = threading.Lock()
        self._abandoned = False
        self._kept = False
        """Whether somebody has awaited or entered it, and may go on with it after an `async for`."""
        self._taking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] = calls.loop.create_future()
        self.busy: Future[Any] = calls.submit(self._open, subscribe, feed.threaded_options(options), after)
        """Done when nothing is being done about it in ZooKeeper any more: then the topic may be free again."""
        self.busy.add_done_callback(lambda job: calls.post(self._stand, job))

    def __repr__(self) -> str:
        state = " (closed)" if self.closed else "" if self._source else " (subscribing)"
        return f"<aio.{type(self).__name__} {self._source.id if self._source else ''} of {self.topic!r}{state}>"

    @property
    def id(self) -> str:
        """The name of the subscription; that of a live one changes when a new queue had to be made."""
        return self._standing.id

    @property
    def limit(self) -> int:
        """How many messages may wait."""
        return self._standing.limit

    @property
    def created(self) -> bool:
        """Whether subscribe() made it; a durable one may have been there before."""
        return self._source is not None and self._source.created

    @property
    def _standing(self) -> S:
        if self._source is None:
            raise NotSubscribed(self.topic)
        return self._source

    # -- for each kind -------------------------------------------------------------------------------------------

    async def _deliver(self, source: S, handler: Handler) -> None:
        """Deliver messages to the handler until closed."""
        raise NotImplementedError

    # -- opening -------------------------------------------------------------------------------------------------

    def _open(
        self, subscribe: Callable[[SubscribeOptions], S], options: SubscribeOptions, after: Future[Any] | None
    ) -> None:
        """On a worker. `after` was submitted before this, so it is under way or done."""
        if after is not None:
            after.exception()
        with self._lock:
            if self._abandoned:
                return
        source = subscribe(options)
        with self._lock:
            abandoned, self._source = self._abandoned, source
        if abandoned:
            source.close()

    def _stand(self, job: Future[Any]) -> None:
        """On the loop: it is registered, or could not be."""
        error = job.exception()
        if error is not None:
            log.log(logging.DEBUG if self._abandoned else logging.WARNING, "not subscribed: %s", error)
            self._feed.close()
            self._opened.set_exception(error)
            self._opened.exception()  # or asyncio would complain where nobody awaits it
            return
        if self._source is not None and not self._abandoned and not self._feed.closed:
            self._feed.attach(self._source)
            if self._handler is not None:
                self._task = self._calls.loop.create_task(
                    self._deliver(self._source, self._handler), name=f"zkms-{self.topic}"
                )
                self._task.add_done_callback(self._delivered)
        self._opened.set_result(None)

    async def _stood(self) -> None:
        """Wait until it is registered; a caller that is cancelled leaves it as it is."""
        if not self._opened.done():
            await asyncio.wait([self._opened])
        self._opened.result()

    def abandon(self) -> None:
        """Nobody uses it any more. On any thread."""
        if not (self.closed or self._kept or self._calls.loop.is_closed()):
            self._calls.here_or_post(self._abandon)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        """The task has ended. We wait a moment: a loop that is about to close has cancelled it too."""
        if not self.closed:
            self._calls.loop.call_later(A_MOMENT, self._give_up, "cancelled" if task.cancelled() else "ended")

    def _give_up(self, how: str) -> None:
        """Nobody takes messages any more: others must not wait for our acks."""
        if not self.closed:
            log.error("the delivery of %r was %s: closed", self.topic, how)
            self._abandon()

    async def _ready(self) -> Self:
        self._calls.check_loop()
        try:
            await self._stood()
        except asyncio.CancelledError:
            self._abandon()
            raise
        return self

    def _abandon(self) -> None:
        """Nobody uses it: close it, in the background."""
        self._feed.close()
        with self._lock:
            self._abandoned, source = True, self._source
        if source is not None:
            if self._task is not None:
                self._task.cancel()
            with contextlib.suppress(Closed):
                self.busy = self._calls.submit(source.close, 0.0)

    def __await__(self) -> Generator[Any, None, Self]:
        """Wait until nothing that is published is missed any more."""
        self._kept = True
        return self._ready().__await__()

    async def __aenter__(self) -> Self:
        self._kept = True
        return await self._ready()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- closing -------------------------------------------------------------------------------------------------

    async def close(self, timeout: float = 5.0) -> None:
        """Stop reading: finish the message in flight, and close the subscription below.

        A handler that is still busy after `timeout` seconds is cancelled. When this call is cancelled, it goes on in
        the background.
        """
        timeout = check_seconds("timeout", timeout)
        self._calls.check_loop()
        if not self._opened.done():
            self._abandon()
        if self._abandoned:
            await self._calls.finished(self.busy)
        elif self._source is not None:
            await self._end(self._source.close, timeout)

    async def _end(self, end: Callable[[float], None], timeout: float) -> None:
        """Stop, then `end` it on a worker; once, and unless the end waits for us."""
        own = self._task is not None and self._task is asyncio.current_task()
        if self._ending is None:
            self._ending = self._calls.loop.create_task(self._ended(end, timeout, None if own else self._task))
        elif own:
            return
        await asyncio.shield(self._ending)

    async def _ended(self, end: Callable[[float], None], timeout: float, task: asyncio.Task[None] | None) -> None:
        try:
            await self.stop(timeout, task)
        finally:
            with contextlib.suppress(Closed):  # with the bus: then it is done
                self.busy = self._calls.submit(end, timeout)
        await self._calls.finished(self.busy)
        self.busy.result()

    async def stop(self, timeout: float, task: asyncio.Task[None] | None) -> None:
        """Take no more messages, and wait for the handler, which is cancelled if it is still busy after `timeout`."""
        self._feed.close()
        if task is not None and not task.done():
            await asyncio.wait([task], timeout=timeout)
            if not task.done():
                log.warning("the handler of %r is still busy after %g s: cancelled", self.topic, timeout)
                task.cancel()
                await asyncio.wait([task], timeout=1.0)

    @property
    def closed(self) -> bool:
        """Whether it takes no more messages."""
        return self._feed.closed

    @property
    def over(self) -> bool:
        """Whether it is closed, and all that was to be done about that in ZooKeeper is done."""
        return self.closed and self.busy.done() and (self._ending is None or self._ending.done())

    @property
    def task(self) -> asyncio.Task[None] | None:
        """What runs the handler."""
        return self._task

    # -- pull ----------------------------------------------------------------------------------------------------

    async def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None after `timeout` seconds without one (0 looks once, None waits on).

        One of a durable subscription or a group has to be acked: `await message.ack()`. A get() that is cancelled takes
        none.
        """
        messages = await self.fetch(1, timeout)
        return messages[0] if messages else None

    async def fetch(self, count: int, timeout: float | None = None) -> list[Message]:
        """For each kind."""
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[Message]:
        """Messages until the subscription is closed; each is acked when the loop comes back for the next."""
        return self if self._kept else Iteration(self)

    async def __anext__(self) -> Message:
        """For each kind."""
        raise NotImplementedError

    def _check_pull(self) -> None:
        self._calls.check_loop()
        if self._handler is not None:
            raise InvalidArgument(
                f"{self.topic!r} has a handler, which gets the messages; subscribe without one to pull"
            )
        if self._opened.done():
            self._opened.result()
        if self.closed:
            raise NotSubscribed(self.topic)

    def _check_fetch(self, count: int, timeout: float | None) -> float | None:
        if not isinstance(count, int) or count < 1:
            raise InvalidArgument(f"fetch: count must be a whole number of at least 1, not {count!r:.60}")
        if timeout is not None:
            timeout = check_seconds("timeout", timeout)
        self._check_pull()
        self._kept = True
        return timeout

    async def _turn(self, timeout: float | None) -> bool:
        """Wait for those who asked before; False after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._stood()
                return await self._taking.acquire()
        except TimeoutError as error:
            if isinstance(error, ZkmsError):
                raise
            return False


class Iteration:
    """`async for` straight into what bus.subscribe() returns: nobody else has the subscription.

    Python tells an iterator nothing of a `break`, or of an error in the loop's body; but then it lets go of it at once,
    and the subscription is given up.
    """

    def __init__(self, subscription: Reading[Any, Any]) -> None:
        self._subscription = subscription

    def __aiter__(self) -> Iteration:
        return self

    async def __anext__(self) -> Message:
        return await anext(self._subscription)

    def __del__(self) -> None:
        self._subscription.abandon()
