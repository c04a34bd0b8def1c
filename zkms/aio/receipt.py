"""What became of a message, for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from zkms.aio.calls import Calls, Twin
from zkms.checks import check_seconds
from zkms.errors import ConnectionLost
from zkms.publish.receipt import ANSWER
from zkms.publish.receipt import Receipt as ThreadedReceipt


class LoopBell:
    """Looks like a Condition to the one who rings; the one who waits does so on the event loop."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._rung = asyncio.Event()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_exc: object) -> None:
        self._lock.release()

    def notify_all(self) -> None:
        """Wake the one who waits. Callable from any thread."""
        self._calls.post(self._rung.set)

    async def wait(self, seconds: float | None) -> None:
        """Return when it has rung since the last wait(), or after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()


class Receipt(Twin[ThreadedReceipt]):
    """A message's way, one entry per subscription. `wait()` looks; the properties tell what was seen last."""

    def __repr__(self) -> str:
        return repr(self._threaded)

    @property
    def topic(self) -> str:
        """Where it was published."""
        return self._threaded.topic

    @property
    def producer(self) -> str:
        """Who published it."""
        return self._threaded.producer

    @property
    def seq(self) -> int:
        """Number of the message, or of the first one if this is the receipt of several."""
        return self._threaded.seq

    @property
    def count(self) -> int:
        """How many messages travelled together."""
        return self._threaded.count

    @property
    def id(self) -> str:
        """The (first) message's id, unless the publisher gave it one."""
        return self._threaded.id

    @property
    def duplicate_of(self) -> str | None:
        """The message that was stored before under the id that was given; None if this is no duplicate."""
        return self._threaded.duplicate_of

    @property
    def acked(self) -> tuple[str, ...]:
        """Subscriptions that are done with it."""
        return self._threaded.acked

    @property
    def pending(self) -> tuple[str, ...]:
        """Subscriptions that have it and did not ack yet."""
        return self._threaded.pending

    @property
    def gone(self) -> Mapping[str, str]:
        """Subscriptions that will never ack, and why: purged, unsubscribed, queue full..."""
        return self._threaded.gone

    @property
    def due(self) -> float | None:
        """When it is due, in seconds since the epoch, if it was published for later."""
        return self._threaded.due

    @property
    def delayed(self) -> bool:
        """Whether it was still waiting to become due when we last looked: who gets it is decided then."""
        return self._threaded.delayed

    async def wait(self, timeout: float | None = None) -> Receipt:
        """Return when nobody is pending any more, or after `timeout` seconds; then look at the properties.

        Raises `ConnectionLost` if ZooKeeper cannot be asked in that time.
        """
        return await self.wait_for(None if timeout is None else check_seconds("timeout", timeout), ANSWER)

    async def wait_for(self, seconds: float | None, answer: float = 0.0) -> Receipt:
        """wait(); ZooKeeper has `answer` seconds for each answer, however soon the time is over."""
        self._calls.check_loop()
        clock = self._calls.loop.time
        deadline = None if seconds is None else clock() + seconds
        fired = set(self._threaded.pending)
        bell = LoopBell(self._calls)
        try:
            await self._watch(fired, bell, deadline, answer)
        finally:
            self._threaded.leave(bell)
        return self

    async def _watch(self, fired: set[str], bell: LoopBell, deadline: float | None, answer: float) -> None:
        clock = self._calls.loop.time
        while self._threaded.pending:
            left = None if deadline is None else deadline - clock()
            try:
                await self._look(fired, bell, None if left is None else max(left, answer))
            except ConnectionLost:
                fired.update(self._threaded.pending)  # the watches went with the connection
                if deadline is not None and clock() >= deadline:
                    raise
                continue
            left = None if deadline is None else deadline - clock()
            if not self._threaded.pending or (left is not None and left <= 0):
                break
            if not fired:
                await bell.wait(left)
                if not fired and deadline is not None and clock() >= deadline:
                    break

    async def _look(self, fired: set[str], bell: LoopBell, seconds: float | None) -> None:
        """On a worker; so many others may wait there for a silent ZooKeeper that our turn never comes."""
        try:
            async with asyncio.timeout(seconds):
                await self._calls.run(self._threaded.look, fired, bell, seconds)
        except TimeoutError as error:
            raise ConnectionLost("ZooKeeper did not answer in time") from error
