"""Publishing from the event loop: what is prepared there is sent by one thread.

Group commit for tasks (`Outbox`): publishes that are awaited at the same time share transactions. `GroupCommit` decides
which ones and when (see publish/batching.py). What nobody awaits any more is not sent. publish_many (`Bulk`) packs
messages on the loop a slice at a time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any

from zkms.aio.calls import SLICE, Calls
from zkms.errors import Closed, ConnectionLost, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.batching import Batch, GroupCommit
from zkms.publish.options import Kind
from zkms.publish.packer import Packer
from zkms.publish.publisher import PackOne, Publisher, note_stored
from zkms.publish.receipt import Receipt

log = logging.getLogger("zkms.aio")
AT_A_TIME = 64
"""Messages that are packed between two looks at the clock."""


@dataclass(slots=True, eq=False)
class PendingMessage:
    """A message, and who awaits its receipt."""

    packed: Packed
    receipt: asyncio.Future[Receipt]
    sent: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class AwaitedBatch(Batch):
    """Messages of one kind, in the order of their publishes, and who awaits each."""

    waiting: list[PendingMessage] = field(default_factory=list)


Frames = list[tuple[list[PendingMessage], Future[Receipt]]]


class Outbox:
    """Gathers single messages of one event loop. Used on that loop only."""

    def __init__(self, publisher: Publisher, calls: Calls) -> None:
        self._publisher = publisher
        self._calls = calls
        self._commit = GroupCommit(AwaitedBatch)
        self._sending = False
        """Whether the thread is busy with a batch: what comes meanwhile is gathered."""
        self._idle = asyncio.Event()
        self._idle.set()

    async def send(self, kind: Kind, packed: Packed, deadline: float) -> Receipt:
        """Store a message; when cancelled before it is sent, it never is."""
        waiting = PendingMessage(packed, self._calls.loop.create_future())
        self._commit.add(kind, packed, deadline, time.monotonic()).waiting.append(waiting)
        self._idle.clear()
        self._advance()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await waiting.receipt
        except TimeoutError as error:
            if isinstance(error, ZkmsError):
                raise
            raise late(waiting.sent) from error

    async def drain(self, timeout: float) -> None:
        """Wait until everything is answered, at most `timeout` seconds; then what is not sent is `Closed`."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            for batch in self._commit.waiting:
                _fail(batch.waiting, Closed("the bus was closed before this was sent"))

    def _advance(self) -> None:
        """Send the next batch, if it may go."""
        commit = self._commit
        while commit.waiting and not self._sending and not commit.wait(commit.waiting[0], time.monotonic()):
            batch = commit.waiting[0]
            commit.start(batch, time.monotonic())
            wanted = [each for each in batch.waiting if not each.receipt.done()]
            for each in wanted:
                each.sent = True
            try:
                if not wanted:
                    commit.ended()
                    continue
                job = self._calls.submit_send(self._transmit, batch.kind, wanted, batch.deadline)
            except Closed as error:
                commit.ended()
                _fail(wanted, error)
                continue
            self._sending = True
            job.add_done_callback(lambda job, wanted=wanted: self._calls.post(self._sent, wanted, job))  # type: ignore[misc]
        if not (commit.waiting or commit.in_flight):
            self._idle.set()

    def _transmit(self, kind: Kind, waiting: Sequence[PendingMessage], deadline: float) -> Frames:
        """On the thread for publishing: as many frames as the queues' limits ask for, mostly one."""
        frames: Frames = []
        rest = iter(waiting)
        packer = Packer(self._publisher.budget(kind, deadline))

        def send(packed: list[Packed]) -> None:
            part = [next(rest) for _ in packed]
            try:
                reply = self._publisher.send(kind, packed, deadline)
            except Exception as error:  # noqa: BLE001 - those of the frames before are stored all the same
                reply = Future()
                reply.set_exception(error)
            frames.append((part, reply))

        for packed in packer.fill(each.packed for each in waiting):
            send(packed)
        send(packer.packed)
        return frames

    def _sent(self, waiting: Sequence[PendingMessage], job: Future[Frames]) -> None:
        self._sending = False
        self._commit.ended()
        error = job.exception()
        if error is not None:
            _fail(waiting, error)
        else:
            for part, reply in job.result():
                self._commit.in_flight += 1
                reply.add_done_callback(lambda reply, part=part: self._calls.post(self._answered, part, reply))  # type: ignore[misc]
        self._advance()

    def _answered(self, waiting: Sequence[PendingMessage], reply: Future[Receipt]) -> None:
        self._commit.ended()
        try:
            receipt = reply.result()
        except (Exception, CancelledError) as error:  # noqa: BLE001 - whatever it is, it is for those who wait
            _fail(waiting, ConnectionLost("given up") if isinstance(error, CancelledError) else error)
        else:
            for place, each in enumerate(waiting):
                if not each.receipt.done():
                    each.receipt.set_result(receipt.at(place))
        self._advance()


def late(sent: bool) -> ConnectionLost:
    """What a publish raises whose time is over."""
    if sent:
        return ConnectionLost("ZooKeeper did not answer in time")
    return ConnectionLost("not stored: could not be sent to ZooKeeper in time", outcome_unknown=False)


def _fail(waiting: Sequence[PendingMessage], error: BaseException) -> None:
    for each in waiting:
        if not each.receipt.done():
            each.receipt.set_exception(error)


class Bulk:
    """The frames of one call of publish_many()."""

    def __init__(self, publisher: Publisher, calls: Calls, kind: Kind, pack: PackOne, allowed: float) -> None:
        self._publisher = publisher
        self._calls = calls
        self._kind = kind
        self._pack = pack
        self._allowed = allowed
        self._deadline = time.monotonic() + allowed
        self._packer = Packer((0, 0))
        self._futures: list[Future[Receipt]] = []
        self._checked = 0
        self._sending: Future[None] | None = None
        self._taken = itertools.count()
        """Counts the messages."""

    async def take(self, messages: Iterable[Any] | AsyncIterable[Any]) -> None:
        """Pack and send them, with a pause for others on the loop now and then."""
        await self._send([])
        await self._sent()
        if isinstance(messages, AsyncIterable):
            async for data in messages:
                for frame in self._packer.fill((self._pack(data, next(self._taken)),)):
                    await self._send(frame)
        else:
            packed = map(self._pack, messages, self._taken)
            rest_at = time.monotonic() + SLICE
            while some := [*itertools.islice(packed, AT_A_TIME)]:
                for frame in self._packer.fill(some):
                    await self._send(frame)
                    rest_at = time.monotonic() + SLICE
                if time.monotonic() > rest_at:
                    await asyncio.sleep(0)
                    rest_at = time.monotonic() + SLICE
        if self._packer.packed:
            await self._send(self._packer.packed)

    async def _send(self, frame: list[Packed]) -> None:
        """Send a frame, if there is one, and find out what the next may have: while that is packed."""
        await self._sent()
        self._deadline = time.monotonic() + self._allowed
        self._sending = self._calls.submit_send(self._transmit, frame)

    async def _sent(self) -> None:
        """Wait until the last frame is on its way; raise if that, or one before, has failed."""
        if self._sending is not None:
            await asyncio.wrap_future(self._sending)
        while self._checked < len(self._futures) and self._futures[self._checked].done():
            _result(self._futures[self._checked])
            self._checked += 1

    def _transmit(self, frame: list[Packed]) -> None:
        """On the thread for publishing, which waits while too much is under way."""
        if frame:
            self._futures.append(self._publisher.send(self._kind, frame, self._deadline))
        self._packer.budget = self._publisher.budget(self._kind, self._deadline)

    async def end(self) -> list[Receipt]:
        """Wait for everything: a receipt for each frame."""
        await self._sent()
        return [await self._answer(future) for future in self._futures]

    async def give_up(self, error: ZkmsError) -> None:
        """Note in the error how many messages were stored, when that is known of those under way."""
        if self._sending is not None:
            await self._calls.finished(self._sending)
        for future in self._futures:
            try:
                await self._answer(future)
            except ZkmsError as other:
                log.debug("another frame of the same call failed: %s", other)
        note_stored(error, self._futures, next(self._taken))

    async def _answer(self, future: Future[Receipt]) -> Receipt:
        if not future.done():
            try:
                async with asyncio.timeout(max(0.0, self._deadline - time.monotonic())):
                    await self._calls.finished(future)
            except TimeoutError as error:
                if future.cancel():  # recovery will not send it again
                    raise late(sent=True) from error
        return _result(future)


def _result(future: Future[Receipt]) -> Receipt:
    try:
        return future.result()
    except CancelledError as error:  # by us, when it was waited for before
        raise ConnectionLost("ZooKeeper did not answer in time") from error
