"""A live subscription on the event loop: handlers in order, or get, fetch and `async for`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from zkms.aio.calls import Calls
from zkms.aio.iteration import Iteration
from zkms.aio.stream import Stream, must_pass, returned
from zkms.config import check_seconds
from zkms.errors import Closed, InvalidArgument, NotSubscribed, ZkmsError
from zkms.message import Handover, Message
from zkms.subscription import Handler
from zkms.subscription import Subscription as ThreadedSubscription
from zkms.unpacking import Undecodable, Unpacked

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("zkms.aio")
A_MOMENT = 0.5
"""Seconds in which a loop that has cancelled its tasks is closed."""


class Subscription:
    """What bus.subscribe() returns: `await` it, use it in `async with`, or go straight into `async for`.

    Subscribing begins at once. When an `await` of it, or the first step of an `async with` or `async for`, has
    returned, nothing is missed any more. If that is cancelled, the subscription is given up. An `async for` that goes
    straight into what bus.subscribe() returns gives it up at its end too, also by `break`: nobody else would.
    """

    def __init__(
        self,
        calls: Calls,
        topic: str,
        handler: Handler | None,
        stream: Stream,
        subscribe: Callable[[], ThreadedSubscription],
        *,
        manual: bool,
        after: Future[Any] | None,
    ) -> None:
        self.topic = topic
        self._calls = calls
        self._handler = handler
        self._manual = manual
        self._stream = stream
        self._source: ThreadedSubscription | None = None
        self._lock = threading.Lock()
        self._abandoned = False
        self._held = False
        """Whether somebody has awaited or entered it, and may go on with it after an `async for`."""
        self._unpacked: deque[Message | Undecodable] = deque()
        self._entry: Handover
        self._iterated: list[Handover] = []
        """What `async for` acks when it comes back."""
        self._taking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] = calls.loop.create_future()
        self.busy: Future[Any] = calls.submit(self._open, subscribe, after)
        """Done when nothing is being done about it in ZooKeeper any more: then the topic may be free again."""
        self.busy.add_done_callback(lambda job: calls.post(self._stand, job))

    def __repr__(self) -> str:
        state = " (closed)" if self._stream.closed else "" if self._source else " (subscribing)"
        return f"<aio.Subscription {self._source.id if self._source else ''} to {self.topic!r}{state}>"

    @property
    def id(self) -> str:
        """The id of its queue; it changes when a new queue had to be made."""
        if self._source is None:
            raise NotSubscribed(self.topic)
        return self._source.id

    @property
    def limit(self) -> int:
        """How many messages may wait."""
        if self._source is None:
            raise NotSubscribed(self.topic)
        return self._source.limit

    @property
    def created(self) -> bool:
        """Whether subscribe() made it; a durable one may have been there before."""
        return self._source is not None and self._source.created

    # -- opening -------------------------------------------------------------------------------------------------

    def _open(self, subscribe: Callable[[], ThreadedSubscription], after: Future[Any] | None) -> None:
        """On a worker. `after` was submitted before this, so it is under way or done."""
        if after is not None:
            after.exception()
        with self._lock:
            if self._abandoned:
                return
        source = subscribe()
        with self._lock:
            abandoned, self._source = self._abandoned, source
        if abandoned:
            source.unsubscribe()

    def _stand(self, job: Future[Any]) -> None:
        """On the loop: it is registered, or could not be."""
        error = job.exception()
        if error is not None:
            log.log(logging.DEBUG if self._abandoned else logging.WARNING, "not subscribed: %s", error)
            self._stream.close()
            self._opened.set_exception(error)
            self._opened.exception()  # or asyncio would complain where nobody awaits it
            return
        if self._source is not None and not self._abandoned and not self._stream.closed:
            self._stream.attach(self._source)
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
        """Nobody has it in hand any more. On any thread."""
        if not (self._stream.closed or self._held or self._calls.loop.is_closed()):
            self._calls.here_or_post(self._abandon)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        """The task has ended. We wait a moment: a loop that is about to close has cancelled it too."""
        if not self._stream.closed:
            self._calls.loop.call_later(A_MOMENT, self._give_up, "cancelled" if task.cancelled() else "ended")

    def _give_up(self, how: str) -> None:
        """Nobody takes messages any more: others must not wait for our acks."""
        if not self._stream.closed:
            log.error("the delivery of %r was %s: unsubscribed", self.topic, how)
            self._abandon()

    async def _ready(self) -> Subscription:
        self._calls.check_loop()
        try:
            await self._stood()
        except asyncio.CancelledError:
            self._abandon()
            raise
        return self

    def _abandon(self) -> None:
        """Nobody has it in hand: give it up, in the background."""
        self._stream.close()
        with self._lock:
            self._abandoned, source = True, self._source
        if source is not None:
            if self._task is not None:
                self._task.cancel()
            with contextlib.suppress(Closed):
                self.busy = self._calls.submit(source.unsubscribe, 0.0)

    def __await__(self) -> Generator[Any, None, Subscription]:
        """Wait until nothing that is published is missed any more."""
        self._held = True
        return self._ready().__await__()

    async def __aenter__(self) -> Subscription:
        self._held = True
        return await self._ready()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.unsubscribe()

    # -- closing -------------------------------------------------------------------------------------------------

    async def unsubscribe(self, timeout: float = 5.0) -> None:
        """Give the subscription up: finish the message in hand, then remove the registration and the queue.

        A handler that is still busy after `timeout` seconds is cancelled. When this call is cancelled, it goes on in
        the background.
        """
        timeout = check_seconds("timeout", timeout)
        self._calls.check_loop()
        own = self._task is not None and self._task is asyncio.current_task()
        if not self._opened.done():
            self._abandon()
        if self._abandoned:
            await self._calls.finished(self.busy)
        elif self._source is not None and not (own and self._ending is not None):  # or the end waits for us
            if self._ending is None:
                ending = self._end(self._source, timeout, None if own else self._task)
                self._ending = self._calls.loop.create_task(ending)
            await asyncio.shield(self._ending)

    close = unsubscribe

    async def _end(self, source: ThreadedSubscription, timeout: float, task: asyncio.Task[None] | None) -> None:
        try:
            await self.stop(timeout, task)
        finally:
            with contextlib.suppress(Closed):  # with the bus: then it is done
                self.busy = self._calls.submit(source.unsubscribe, timeout)
        await self._calls.finished(self.busy)
        self.busy.result()

    async def stop(self, timeout: float, task: asyncio.Task[None] | None) -> None:
        """Take no more messages, and wait for the handler, which is cancelled if it is still busy after `timeout`."""
        self._stream.close()
        if task is not None and not task.done():
            await asyncio.wait([task], timeout=timeout)
            if not task.done():
                log.warning("the handler of %r is still busy after %g s: cancelled", self.topic, timeout)
                task.cancel()
                await asyncio.wait([task], timeout=1.0)

    @property
    def closed(self) -> bool:
        """Whether it takes no more messages."""
        return self._stream.closed

    @property
    def over(self) -> bool:
        """Whether it is closed, and all that was to be done about that in ZooKeeper is done."""
        return self._stream.closed and self.busy.done() and (self._ending is None or self._ending.done())

    @property
    def task(self) -> asyncio.Task[None] | None:
        """What runs the handler."""
        return self._task

    # -- pull ----------------------------------------------------------------------------------------------------

    async def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None after `timeout` seconds without one (0 looks once, None waits on).

        A get() that is cancelled takes none.
        """
        messages = await self.fetch(1, timeout)
        return messages[0] if messages else None

    async def fetch(self, count: int, timeout: float | None = None) -> list[Message]:
        """Up to `count` messages: waits for the first as get() does, and takes what is there besides."""
        if not isinstance(count, int) or count < 1:
            raise InvalidArgument(f"fetch: count must be a whole number of at least 1, not {count!r:.60}")
        if timeout is not None:
            timeout = check_seconds("timeout", timeout)
        self._check_pull()
        self._held = True
        messages, entries = await self._take(count, timeout)
        if not self._manual:
            for entry in entries:
                entry.finish()
        return messages

    def __aiter__(self) -> AsyncIterator[Message]:
        """Messages until the subscription is closed; each is acked when the loop comes back for the next."""
        return self if self._held else Iteration(self)

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

    def _check_pull(self) -> None:
        self._calls.check_loop()
        if self._handler is not None:
            raise InvalidArgument(
                f"{self.topic!r} has a handler, which gets the messages; subscribe without one to pull"
            )
        if self._opened.done():
            self._opened.result()
        if self._stream.closed:
            raise NotSubscribed(self.topic)

    async def _take(self, count: int, timeout: float | None) -> tuple[list[Message], list[Handover]]:
        """Up to `count` messages, and the entries of which that were the last ones.

        From the first message taken to the return there is no await, so no cancellation can come in between.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        taken: list[Message] = []
        entries: list[Handover] = []
        if not await self._turn(timeout):
            return taken, entries
        try:
            await self._stream.rest()
            while not taken and (self._unpacked or self._load(await self._stream.next(deadline))):
                self._gather(count, taken, entries)
                if not taken:
                    await self._stream.tell()
        finally:
            self._taking.release()
        return taken, entries

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

    def _load(self, unpacked: Unpacked | None) -> bool:
        if unpacked is None:
            return False
        self._entry = unpacked.entry
        self._unpacked.extend(unpacked.items)
        return True

    def _gather(self, count: int, taken: list[Message], entries: list[Handover]) -> None:
        """Take what is at hand, up to the first that cannot be decoded: its callback comes between the two."""
        while self._unpacked:
            item = self._unpacked[0]
            if isinstance(item, Message):
                self._unpacked.popleft()
                taken.append(item)
                if not self._unpacked:
                    entries.append(self._entry)
            elif taken:
                return
            else:
                self._skip(self._unpacked.popleft())
                return
            if len(taken) == count or not (self._unpacked or self._load(self._stream.next_at_once())):
                return

    def _skip(self, problem: Message | Undecodable) -> None:
        if self._source is not None and isinstance(problem, Undecodable):
            self._source.skip(self._entry, problem)
        if not self._unpacked and not self._manual:
            self._entry.finish()  # those before it were taken, and done with, before

    # -- push ----------------------------------------------------------------------------------------------------

    async def _deliver(self, source: ThreadedSubscription, handler: Handler) -> None:
        stream = self._stream
        while not stream.closed:
            try:
                unpacked = await stream.next(None)
            except ZkmsError as error:
                await self._report(source, error, None)
                continue
            if unpacked is not None and await self._handle(source, handler, unpacked) and not self._manual:
                unpacked.entry.finish()

    async def _handle(self, source: ThreadedSubscription, handler: Handler, unpacked: Unpacked) -> bool:
        """Hand the messages of an entry to the handler; False if the subscription was closed in the middle."""
        stream = self._stream
        rest_at = stream.rest_at
        for item in unpacked.items:
            if stream.closed:
                return False
            if item.__class__ is not Message:  # as cheap as it gets: this runs for every message
                source.skip(unpacked.entry, item)  # type: ignore[arg-type]
                await stream.tell()
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
            if time.monotonic() > rest_at:
                await stream.rest()
                rest_at = stream.rest_at
        return True

    async def _report(self, source: ThreadedSubscription, error: Exception, message: Message | None) -> None:
        source.report(error, message)
        await self._stream.tell()
