"""Group commit for tasks: publishes that are awaited at the same time share transactions, and one thread sends them.

`GroupCommit` decides which ones and when (see publish/batching.py). What nobody awaits any more is not sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field

from zkms.aio.calls import Calls
from zkms.errors import Closed, ConnectionLost, ZkmsError
from zkms.message.frame import Packed
from zkms.publish.batching import Batch, GroupCommit
from zkms.publish.options import Kind
from zkms.publish.packer import Packer
from zkms.publish.publisher import Publisher
from zkms.publish.receipt import Receipt


@dataclass(slots=True, eq=False)
class Waiting:
    """A message, and who awaits its receipt."""

    packed: Packed
    receipt: asyncio.Future[Receipt]
    sent: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class AwaitedBatch(Batch):
    """Messages of one kind, in the order of their publishes, and who awaits each."""

    waiting: list[Waiting] = field(default_factory=list)


Frames = list[tuple[list[Waiting], Future[Receipt]]]


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
        waiting = Waiting(packed, self._calls.loop.create_future())
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

    def _transmit(self, kind: Kind, waiting: Sequence[Waiting], deadline: float) -> Frames:
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

    def _sent(self, waiting: Sequence[Waiting], job: Future[Frames]) -> None:
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

    def _answered(self, waiting: Sequence[Waiting], reply: Future[Receipt]) -> None:
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


def _fail(waiting: Sequence[Waiting], error: BaseException) -> None:
    for each in waiting:
        if not each.receipt.done():
            each.receipt.set_exception(error)
