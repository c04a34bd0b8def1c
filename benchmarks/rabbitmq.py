"""RabbitMQ: a durable fan-out exchange, a durable queue a subscriber, persistent messages, confirms, manual acks.

pika's asynchronous connections on one loop a process. A publisher has 64 messages unconfirmed at the most; a subscriber
has 1024 unacked at the most and acks 256 at a time, or what there is when no more come.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pika
from pika.adapters.select_connection import IOLoop

from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.algorithms.tally import Tally
from zkms.errors import Timeout

DEPTH = 64
PREFETCH = 1024
ACK = 256
IDLE = 0.01
PATIENCE = 60.0


class Loop:
    """pika's loop on a thread, and connections on it."""

    def __init__(self, place: BenchPlace) -> None:
        host, port = place.address.split(":")
        self._parameters = pika.ConnectionParameters(host, int(port), heartbeat=0)
        self._loop = IOLoop()
        self._connections: list[Any] = []
        self._thread = threading.Thread(target=self._loop.start, name="pika", daemon=True)

    def start(self) -> None:
        """Run what was asked for."""
        self._thread.start()

    def open(self, ready: Callable[[Any], None]) -> None:
        """Connect; `ready` is called on the loop with a channel."""
        self._connections.append(
            pika.SelectConnection(
                self._parameters,
                on_open_callback=lambda connection: connection.channel(on_open_callback=ready),
                custom_ioloop=self._loop,
            )
        )

    def call(self, work: Callable[[], None]) -> None:
        """Do it on the loop, from any thread."""
        self._loop.add_callback_threadsafe(work)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do it on the loop, on its thread."""
        self._loop.call_later(seconds, work)

    def close(self) -> None:
        """The server drops the connections when the process ends; no messages are under way then."""
        self.call(self._loop.stop)
        self._thread.join(5)


class Publisher:
    """A window of unconfirmed messages."""

    def __init__(self, place: BenchPlace) -> None:
        self.frame = 1
        self._exchange = place.root
        self._properties = pika.BasicProperties(delivery_mode=2)
        self._unconfirmed: set[int] = set()
        self._tag = 0
        self._left: Iterator[bytes] = iter(())
        self._done = threading.Event()
        self._refused = 0
        self._loop = Loop(place)
        self._channel: Any = None
        opened = threading.Event()

        def ready(channel: Any) -> None:
            self._channel = channel
            channel.confirm_delivery(self._confirmed, callback=lambda _frame: opened.set())

        self._loop.open(ready)
        self._loop.start()
        if not opened.wait(PATIENCE):
            raise Timeout("RabbitMQ does not answer")

    def publish(self, payloads: Iterable[bytes]) -> None:
        """All, and return when all are confirmed."""
        self._left = iter(payloads)
        self._done.clear()
        self._loop.call(self._fill)
        self._done.wait()
        if self._refused:
            raise Timeout(f"RabbitMQ has refused {self._refused} messages")

    def publish_one(self, payload: bytes) -> None:
        """One."""
        self.publish([payload])

    def _fill(self) -> None:
        while len(self._unconfirmed) < DEPTH:
            payload = next(self._left, None)
            if payload is None:
                if not self._unconfirmed:
                    self._done.set()
                return
            self._tag += 1
            self._unconfirmed.add(self._tag)
            self._channel.basic_publish(self._exchange, "", payload, self._properties)

    def _confirmed(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        self._refused += isinstance(frame.method, pika.spec.Basic.Nack)
        if frame.method.multiple:
            self._unconfirmed = {other for other in self._unconfirmed if other > tag}
        else:
            self._unconfirmed.discard(tag)
        self._fill()

    def settle(self, timeout: float) -> float:  # noqa: ARG002
        """The subscribers know."""
        return time.monotonic()

    def close(self) -> None:
        """Stop the loop."""
        self._loop.close()


class Subscriber:
    """A connection and its queue; everything happens on the loop."""

    def __init__(self, loop: Loop, place: BenchPlace, tally: Tally, name: str) -> None:
        self.ready = threading.Event()
        self._loop, self._place, self._tally = loop, place, tally
        self._queue = f"{place.root}-{name}"
        self._channel: Any = None
        self._unacked = 0
        self._tag = 0
        self._idle = False
        loop.open(self._opened)

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.exchange_declare(self._place.root, "fanout", durable=True)
        channel.queue_declare(self._queue, durable=True)
        channel.queue_bind(self._queue, self._place.root)
        channel.basic_consume(self._queue, self._received, callback=lambda _frame: self.ready.set())

    def _received(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self._tally.take(body)
        self._tag = method.delivery_tag
        self._unacked += 1
        if self._unacked >= ACK:
            self._ack()
        elif not self._idle:
            self._idle = True
            self._loop.later(IDLE, self._ack_idle)

    def _ack(self) -> None:
        if self._unacked:
            self._unacked = 0
            self._channel.basic_ack(self._tag, multiple=True)

    def _ack_idle(self) -> None:
        self._idle = False
        self._ack()

    def settle(self, done: threading.Event) -> None:
        """Ack what is left; a question after it is answered when the server has seen the ack."""

        def ask() -> None:
            self._ack()
            self._channel.queue_declare(self._queue, passive=True, callback=lambda _frame: done.set())

        self._loop.call(ask)


class Subscribers:
    """A connection for each, on one loop."""

    def __init__(self, place: BenchPlace, tallies: Sequence[Tally], first: int) -> None:
        self.names = [f"subscriber-{first + i}" for i in range(len(tallies))]
        self._loop = Loop(place)
        pairs = zip(tallies, self.names, strict=True)
        self._subscribers = [Subscriber(self._loop, place, tally, name) for tally, name in pairs]
        self._loop.start()
        for subscriber in self._subscribers:
            if not subscriber.ready.wait(PATIENCE):
                raise Timeout("RabbitMQ does not answer")

    def settle(self, timeout: float) -> None:
        """Ack, and ask."""
        answers = [threading.Event() for _ in self._subscribers]
        for subscriber, answer in zip(self._subscribers, answers, strict=True):
            subscriber.settle(answer)
        deadline = time.monotonic() + timeout
        for answer in answers:
            if not answer.wait(max(0.0, deadline - time.monotonic())):
                raise Timeout("RabbitMQ has not seen all acks in time")

    def close(self) -> None:
        """Stop the loop."""
        self._loop.close()


def publisher(place: BenchPlace) -> Publisher:
    """Connect."""
    return Publisher(place)


def subscribers(place: BenchPlace, tallies: Sequence[Tally], *, first: int, session_timeout: float) -> Subscribers:  # noqa: ARG001
    """Make the queues."""
    return Subscribers(place, tallies, first)
