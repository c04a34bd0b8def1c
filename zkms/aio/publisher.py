"""A publisher for a stream of messages, for asyncio.

async with bus.publisher("prices") as prices:
    async for price in ticker:
        await prices.send(price)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from zkms.aio.calls import SLICE, Calls, OpenedOnce, Twin, passed_on
from zkms.aio.receipt import Receipt
from zkms.checks import check_seconds
from zkms.errors import Closed, Timeout, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.topic_publisher import Sent as ThreadedSent
from zkms.publish.topic_publisher import TopicPublisher as ThreadedPublisher


class Sent(Twin[ThreadedSent]):
    """One message of a stream: on its way, stored, or failed."""

    __slots__ = ()

    done = passed_on(ThreadedSent.done)

    async def result(self, timeout: float | None = None) -> Receipt:
        """Wait until it is stored and return its receipt, or raise why it is not."""
        timeout = None if timeout is None else check_seconds("timeout", timeout)
        self._calls.check_loop()
        if not self._threaded.done():
            done = asyncio.Event()
            self._threaded.add_done_callback(lambda _: self._calls.post(done.set))
            try:
                async with asyncio.timeout(timeout):
                    await done.wait()
            except TimeoutError:
                raise Timeout(f"not stored within {timeout:g} s; it is still on its way") from None
        return Receipt(self._calls, self._threaded.result(0))

    def __repr__(self) -> str:
        return f"<aio.{repr(self._threaded)[1:]}"


class TopicPublisher(OpenedOnce[ThreadedPublisher]):
    """What bus.publisher() returns: use it in `async with`, or `await` it and close() it."""

    def __init__(self, calls: Calls, topic: str, make: Callable[[], ThreadedPublisher], timeout: float) -> None:
        self.topic = topic
        self._timeout = timeout
        self._turn = asyncio.Lock()
        self._room = asyncio.Event()
        self._full = False
        self._rest_at = time.monotonic() + SLICE

        def made() -> ThreadedPublisher:
            publisher = make()
            publisher.answered = self._answered
            return publisher

        again = "a publisher is opened once: call bus.publisher() again for another"
        super().__init__(calls, f"publisher {topic}", made, ThreadedPublisher.close, again=again)

    def __repr__(self) -> str:
        return f"<aio.TopicPublisher to {self.topic!r}>"

    async def send(
        self, data: Any, *, key: str | None = None, headers: Mapping[str, str] | None = None, id: str | None = None
    ) -> Sent:
        """Put a message on its way; waits only while `max_in_flight` are. When cancelled, it is not sent.

        Raises `Timeout` if there was no room for it in time; it is not sent then.
        """
        publisher = self._check()
        packed = publisher.pack(data, key, headers, id)
        if time.monotonic() > self._rest_at:
            await asyncio.sleep(0)  # a stream that always finds room must leave the loop to others
            self._rest_at = time.monotonic() + SLICE
        if self._turn.locked() or (sent := publisher.send_at_once(packed)) is None:
            sent = await self._send_later(publisher, packed)
        return Sent(self._calls, sent)

    async def _send_later(self, publisher: ThreadedPublisher, packed: Packed) -> ThreadedSent:
        """In the order of the calls, when there is room."""
        try:
            async with asyncio.timeout(self._timeout), self._turn:
                while True:
                    self._room.clear()
                    self._full = True  # before the look: an answer that comes after it rings
                    if (sent := publisher.send_at_once(packed)) is not None:
                        return sent
                    await self._room.wait()
                    self._rest_at = time.monotonic() + SLICE
        except TimeoutError as error:
            if isinstance(error, ZkmsError):
                raise
            raise Timeout(
                f"too many messages to {self.topic!r} are on their way, and there was no room for "
                f"{self._timeout:g} s; this one was not sent"
            ) from None

    def _answered(self) -> None:
        """On a thread of the core's."""
        if self._full:
            self._full = False
            self._calls.post(self._room.set)

    async def flush(self, timeout: float | None = None) -> None:
        """Return when all that was sent so far is stored or has failed; `Timeout` after `timeout` seconds."""
        await self._calls.run(self._check().flush, timeout)

    async def close(self, timeout: float | None = None) -> None:
        """Take no more messages, and wait until those on their way are stored or have failed. Safe to call again.

        When this call is cancelled, it goes on in the background.
        """
        self._calls.check_loop()
        if self._threaded is not None:
            try:
                closing = self._calls.submit(self._threaded.close, timeout)
            except Closed:
                return  # with the bus
            await self._calls.finished(closing)
            closing.result()

    def _check(self) -> ThreadedPublisher:
        self._calls.check_loop()
        if self._threaded is None:
            raise Closed(f"the publisher of {self.topic!r} is not open: use `async with bus.publisher(...)`")
        return self._threaded
