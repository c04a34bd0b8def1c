"""Publishes that are awaited at the same time share transactions, and one thread sends them.

A publish on an idle bus goes out at once. While a few transactions are under way, what comes to the same topic is
gathered, as threads' publishes are (see batching.py). What nobody awaits any more is not sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from typing import NamedTuple

from zkms.aio.calls import Calls
from zkms.bus import Bus
from zkms.errors import Closed, ConnectionLost, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.batching import MAX_BYTES, MAX_MESSAGES, UNDER_WAY
from zkms.publish.receipt import Receipt
from zkms.publish.shipment import IfNobody


class Kind(NamedTuple):
    """What messages must have in common to travel together."""

    topic: str
    to_self: bool
    if_nobody: IfNobody
    codec: str | None
    priority: int = 0
    due: float | None = None


class Waiting:
    """A message, and who awaits its receipt."""

    def __init__(self, packed: Packed, deadline: float, receipt: asyncio.Future[Receipt]) -> None:
        self.packed = packed
        self.deadline = deadline
        self.receipt = receipt
        self.sent = False


class Batch:
    """Messages of one kind, in the order of their publishes."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.waiting: list[Waiting] = []
        self._size = 0

    def take(self, waiting: Waiting) -> bool:
        """Add a message, unless there is no room; one that is larger than all of it goes alone."""
        size = waiting.packed.size
        if self.waiting and (len(self.waiting) >= MAX_MESSAGES or self._size + size > MAX_BYTES):
            return False
        self.waiting.append(waiting)
        self._size += size
        return True


Frames = list[tuple[list[Waiting], Future[Receipt]]]


class Outbox:
    """Gathers single messages of one event loop. Used on that loop only."""

    def __init__(self, bus: Bus, calls: Calls) -> None:
        self._bus = bus
        self._calls = calls
        self._batches: deque[Batch] = deque()
        self._last: dict[Kind, Batch] = {}
        """By kind: the batch that takes more, if there is one."""
        self._under_way = 0
        self._sending = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def send(self, kind: Kind, packed: Packed, deadline: float) -> Receipt:
        """Store a message; when cancelled before it is sent, it never is."""
        receipt: asyncio.Future[Receipt] = self._calls.loop.create_future()
        waiting = Waiting(packed, deadline, receipt)
        batch = self._last.get(kind)
        if batch is None or not batch.take(waiting):
            batch = self._last[kind] = Batch(kind)
            batch.take(waiting)
            self._batches.append(batch)
            self._idle.clear()
        self._advance()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await receipt
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
            for batch in self._batches:
                _fail(batch.waiting, Closed("the bus was closed before this was sent"))

    def _advance(self) -> None:
        """Send the next batch, if it may go."""
        while self._batches and not self._sending and self._under_way < UNDER_WAY:
            batch = self._batches.popleft()
            if self._last.get(batch.kind) is batch:
                del self._last[batch.kind]
            wanted = [each for each in batch.waiting if not each.receipt.done()]
            if not wanted:
                continue
            for each in wanted:
                each.sent = True
            try:
                job = self._calls.submit_send(self._transmit, batch.kind, wanted)
            except Closed as error:
                _fail(wanted, error)
                continue
            self._sending = True
            job.add_done_callback(lambda job, wanted=wanted: self._calls.post(self._sent, wanted, job))  # type: ignore[misc]
        if not (self._batches or self._sending or self._under_way):
            self._idle.set()

    def _transmit(self, kind: Kind, waiting: Sequence[Waiting]) -> Frames:
        """On the thread for publishing: as many frames as the queues' limits ask for, mostly one."""
        deadline = max(each.deadline for each in waiting)
        frames: Frames = []
        position = 0
        while position < len(waiting):
            _, most = self._bus._frame_budget(kind.topic, deadline, kind.due)
            part = list(waiting[position : position + most])
            packed = [each.packed for each in part]
            try:
                reply = self._bus._send(kind.topic, packed, kind.to_self, kind.if_nobody, deadline, kind.due)
            except Exception as error:  # noqa: BLE001 - those of the frames before are stored all the same
                reply = Future()
                reply.set_exception(error)
            frames.append((part, reply))
            position += len(part)
        return frames

    def _sent(self, waiting: Sequence[Waiting], job: Future[Frames]) -> None:
        self._sending = False
        error = job.exception()
        if error is not None:
            _fail(waiting, error)
        else:
            for part, reply in job.result():
                self._under_way += 1
                reply.add_done_callback(lambda reply, part=part: self._calls.post(self._answered, part, reply))  # type: ignore[misc]
        self._advance()

    def _answered(self, waiting: Sequence[Waiting], reply: Future[Receipt]) -> None:
        self._under_way -= 1
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


def _fail(waiting: Sequence[Waiting], error: BaseException) -> None:
    for each in waiting:
        if not each.receipt.done():
            each.receipt.set_exception(error)
