"""NATS JetStream: a stream on file, a durable push consumer a subscriber, each with a connection of its own.

A publisher has 64 messages unacknowledged at the most. A subscriber acks all up to a message, every 256 messages or
when no more come.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import nats
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError

from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.algorithms.tally import Tally
from zkms.errors import Timeout

DEPTH = 64
UNACKED = 2048
ACK = 256
IDLE = 0.01
PATIENCE = 60.0
A = TypeVar("A")


class Loop:
    """asyncio on a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, A], timeout: float | None = PATIENCE) -> A:
        """Do it there, and return what it does."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def close(self) -> None:
        """Stop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)


def _names(place: BenchPlace) -> tuple[str, str]:
    stream = place.root.replace("/", "-").strip("-")
    return stream, f"{stream}.{place.topic}"


async def _connect(place: BenchPlace) -> Any:
    client = await nats.connect(f"nats://{place.address}", pending_size=64 * 1024 * 1024)
    stream, subject = _names(place)
    try:
        await client.jetstream().add_stream(StreamConfig(stream, subjects=[subject], storage=StorageType.FILE))
    except BadRequestError as error:
        if error.err_code != 10058:  # made by another of us
            raise
    return client


class Publisher:
    """A window of unacknowledged messages."""

    def __init__(self, place: BenchPlace) -> None:
        self.frame = 1
        self._subject = _names(place)[1]
        self._loop = Loop()
        self._client = self._loop.run(_connect(place))
        self._jetstream = self._client.jetstream(publish_async_max_pending=DEPTH)

    def publish(self, payloads: Iterable[bytes]) -> None:
        """All, and return when all are acknowledged."""
        self._loop.run(self._publish(payloads), timeout=None)

    async def _publish(self, payloads: Iterable[bytes]) -> None:
        for payload in payloads:
            await self._jetstream.publish_async(self._subject, payload)
        await self._jetstream.publish_async_completed()

    def publish_one(self, payload: bytes) -> None:
        """One."""
        self._loop.run(self._jetstream.publish(self._subject, payload))

    def settle(self, timeout: float) -> float:  # noqa: ARG002
        """The subscribers know."""
        return time.monotonic()

    def close(self) -> None:
        """Disconnect."""
        self._loop.run(self._client.close())
        self._loop.close()


class Subscriber:
    """A consumer; everything happens on the loop."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._last: Any = None
        self._unacked = 0
        self._idle = False
        self._client: Any = None

    async def start(self, place: BenchPlace, name: str) -> None:
        """Subscribe."""
        self._client = await _connect(place)
        config = ConsumerConfig(
            durable_name=name,
            ack_policy=AckPolicy.ALL,
            max_ack_pending=UNACKED,
            deliver_policy=DeliverPolicy.NEW,
        )
        await self._client.jetstream().subscribe(
            _names(place)[1], durable=name, cb=self._received, manual_ack=True, config=config
        )

    async def _received(self, message: Any) -> None:
        self._tally.take(message.data)
        self._last = message
        self._unacked += 1
        if self._unacked >= ACK:
            await self._ack()
        elif not self._idle:
            self._idle = True
            asyncio.get_running_loop().call_later(IDLE, lambda: asyncio.ensure_future(self._ack_idle()))

    async def _ack(self) -> None:
        if self._unacked:
            self._unacked = 0
            await self._last.ack()

    async def _ack_idle(self) -> None:
        self._idle = False
        await self._ack()

    async def settle(self) -> None:
        """Ack what is left; the server has read it when it answers a ping."""
        await self._ack()
        await self._client.flush(timeout=int(PATIENCE))

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()


class Subscribers:
    """A connection for each, on one loop."""

    def __init__(self, place: BenchPlace, tallies: Sequence[Tally], first: int) -> None:
        self.names = [f"subscriber-{first + i}" for i in range(len(tallies))]
        self._loop = Loop()
        self._subscribers = [Subscriber(tally) for tally in tallies]
        for subscriber, name in zip(self._subscribers, self.names, strict=True):
            self._loop.run(subscriber.start(place, name))

    def settle(self, timeout: float) -> None:
        """Ack, and flush."""

        async def all_of_them() -> None:
            await asyncio.gather(*(subscriber.settle() for subscriber in self._subscribers))

        try:
            self._loop.run(all_of_them(), timeout)
        except TimeoutError as error:
            raise Timeout("NATS has not seen all acks in time") from error

    def close(self) -> None:
        """Disconnect."""
        for subscriber in self._subscribers:
            self._loop.run(subscriber.close())
        self._loop.close()


def publisher(place: BenchPlace) -> Publisher:
    """Connect."""
    return Publisher(place)


def subscribers(place: BenchPlace, tallies: Sequence[Tally], *, first: int, session_timeout: float) -> Subscribers:  # noqa: ARG001
    """Make the consumers."""
    return Subscribers(place, tallies, first)
