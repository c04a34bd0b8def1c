"""A message on the event loop: what is said about it is awaited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any

from zkms.checks import Codec
from zkms.consume.entry_state import EntryState
from zkms.errors import ConnectionLost
from zkms.message.message import Message as ThreadedMessage

log = logging.getLogger("zkms.aio")


class Stored:
    """Under way since it was made; `await` it to know that it is stored, or why it cannot be."""

    __slots__ = ("_parts",)

    def __init__(self, *parts: tuple[Future[None] | None, EntryState, ThreadedMessage]) -> None:
        self._parts = parts

    def __await__(self) -> Generator[Any, None, None]:
        """Wait; `LostOwnership`, or `ConnectionLost` if ZooKeeper does not answer in time.

        Cancelling this undoes nothing.
        """
        return self._wait().__await__()

    async def _wait(self) -> None:
        for future, entry, message in self._parts:
            if future is not None and not future.done():
                await _done(future, entry.dispatcher.patience)
            entry.wait_until_stored(future, message)


class SentReply:
    """An answer on its way since this was made; `await` it to know that it is stored."""

    __slots__ = ("_future",)

    def __init__(self, future: Future[None]) -> None:
        self._future = future
        future.add_done_callback(_look)

    def __await__(self) -> Generator[Any, None, None]:
        """Wait; raises what publish() raises. Cancelling this undoes nothing."""
        return self._wait().__await__()

    async def _wait(self) -> None:
        await _done(self._future, None)
        self._future.result()


def _look(future: Future[None]) -> None:
    error = future.exception()
    if error is not None:
        log.warning("an answer was not sent: %s", error)


async def _done(future: Future[Any], seconds: float | None) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def ring(_: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(ring)
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
    except TimeoutError as error:
        raise ConnectionLost("ZooKeeper did not answer; this is kept, and sent when it is back") from error


class Message(ThreadedMessage, gc=False, eq=False):
    """One message: what was published, by whom and when. For reading only.

    ack() and the like begin at once, and return what can be awaited: `await message.ack()` returns when it is stored.
    """

    def ack(self) -> Stored:  # type: ignore[override]
        """This is done with: it is never delivered again, and the publisher's receipt says so.

        When the result has been awaited, that is stored (a live message: soon). A handler acks by returning.
        `LostOwnership` says that another process has, or will get, the message.
        """
        entry = self.entry
        if not isinstance(entry, EntryState):
            entry.ack(self)
            return Stored()
        return Stored((entry.start_ack(self), entry, self))

    def nak(self, delay: float | None = None, *, error: str | None = None) -> Stored:  # type: ignore[override]
        """This could not be done: deliver it again after `delay` seconds, or after a pause that grows each time.

        After the subscription's `max_attempts` it goes to the dead letters instead, with the last `error`.
        """
        entry = self.entry
        if not isinstance(entry, EntryState):
            entry.nak(self, delay, error)
            return Stored()
        return Stored((entry.start_nak(self, delay, error), entry, self))

    def touch(self) -> Stored:  # type: ignore[override]
        """This takes longer: its time to run begins anew."""
        self.entry.touch(self)
        return Stored()

    def reply(  # type: ignore[override]
        self, data: Any = None, *, error: str | None = None, codec: Codec | None = None
    ) -> SentReply:
        """Answer a request, with data or with an error; whoever asked may be gone, which is no error here.

        Sending begins at once; await the result to know that it is stored. The first answer of a subscription counts.
        """
        replies = self.entry.replies
        return SentReply(replies.submit(replies.reply, self, data, error, codec))

    def reject(self, reason: str) -> Stored:  # type: ignore[override]
        """This can never be done: put it to the dead letters."""
        entry = self.entry
        if not isinstance(entry, EntryState):
            entry.reject(self, reason)
            return Stored()
        return Stored((entry.start_reject(self, reason), entry, self))


Handler = Callable[[Message], object]
OnError = Callable[[Exception, Message | None], object]
