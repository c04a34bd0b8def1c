"""One process of a benchmark: `python -m zkms.bench.processes.actor`. Obeys orders on standard input, and ends with it.

Standard input ends when whoever gave the orders does, by Ctrl-C or by kill -9: so an actor never outlives a run.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from itertools import repeat
from queue import SimpleQueue

import msgspec

from zkms.bench.algorithms.algorithm import Publishing, Subscribing, load
from zkms.bench.algorithms.tally import KINDS, STAMP, Tally
from zkms.bench.processes import orders
from zkms.bench.processes.meter import forget_peak, own_usage
from zkms.errors import Timeout

CAUGHT_UP = 30.0
"""Seconds that acks may come after the last message."""


class Actor:
    """A publisher or some subscribers."""

    def __init__(self) -> None:
        self._publisher: Publishing | None = None
        self._subscribers: Subscribing | None = None
        self._tallies: list[Tally] = []

    def obey(self, order: orders.Order) -> orders.Answer:
        """Do it and tell."""
        match order:
            case orders.Subscribe():
                return self._subscribe(order)
            case orders.Connect():
                self._publisher = load(order.algorithm).publisher(order.place)
            case orders.Expect():
                for tally in self._tallies:
                    tally.expect(order.messages)
                forget_peak()
            case orders.Release():
                for tally in self._tallies:
                    tally.release()
            case orders.Await():
                return self._await(order.timeout)
            case orders.Publish():
                return self._publish(order)
            case orders.Stop():
                for each in (self._publisher, self._subscribers):
                    if each is not None:
                        each.close()
        return orders.Ready(usage=own_usage())

    def _subscribe(self, order: orders.Subscribe) -> orders.Answer:
        self._tallies = [KINDS[order.tally]() for _ in range(order.count)]
        self._subscribers = load(order.algorithm).subscribers(
            order.place, self._tallies, first=order.first, session_timeout=order.session_timeout
        )
        return orders.Ready(self._subscribers.names, own_usage())

    def _await(self, timeout: float) -> orders.Answer:
        deadline = time.monotonic() + timeout
        for tally in self._tallies:
            if not tally.done.wait(max(0.0, deadline - time.monotonic())):
                got = [each.count for each in self._tallies]
                raise Timeout(f"after {timeout:g} s a subscriber had received {min(got):,} messages only")
        assert self._subscribers is not None  # noqa: S101 - told before
        self._subscribers.settle(CAUGHT_UP)
        settled = time.monotonic()
        latencies = [latency for tally in self._tallies for latency in tally.latencies]
        return orders.Tallied(settled, sum(tally.count for tally in self._tallies), own_usage(), latencies)

    # -- publishing ----------------------------------------------------------------------------------------------

    def _publish(self, order: orders.Publish) -> orders.Answer:
        publisher = self._publisher
        assert publisher is not None  # noqa: S101 - told before
        before, began, late = own_usage(), time.monotonic(), 0
        if order.rate:
            late = _at_rate(publisher, order)
        elif order.threads:
            _from_threads(publisher, order)
        else:
            publisher.publish(_payloads(order))
        stored = time.monotonic()
        settled = publisher.settle(order.timeout) if order.settle else stored
        return orders.Published(began, stored, settled, before, own_usage(), publisher.frame, late)


def _payloads(order: orders.Publish) -> Iterator[bytes]:
    payload = b"x" * order.size
    if order.pack == 1:
        yield from repeat(payload, order.messages)
        return
    encode = msgspec.msgpack.Encoder().encode
    for start in range(0, order.messages, order.pack):
        yield encode([payload] * min(order.pack, order.messages - start))


def _at_rate(publisher: Publishing, order: orders.Publish) -> int:
    """Publish at fixed times. A message that is late because the one before took long counts from when it was due."""
    filler = b"x" * max(0, order.size - STAMP)
    late = 0
    start = time.monotonic_ns()
    for i in range(order.messages):
        due = start + int(i * 1e9 / order.rate)
        wait = due - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
            due = time.monotonic_ns()
        elif i:
            late += 1
        publisher.publish_one(due.to_bytes(STAMP, "big") + filler)
    return late


def _from_threads(publisher: Publishing, order: orders.Publish) -> None:
    payload = b"x" * order.size
    failures: list[Exception] = []

    def work(count: int) -> None:
        try:
            for _ in range(count):
                publisher.publish_one(payload)
        except Exception as error:  # noqa: BLE001 - told by the main thread
            failures.append(error)

    share, rest = divmod(order.messages, order.threads)
    threads = [threading.Thread(target=work, args=(share + (i < rest),)) for i in range(order.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


# -- the process ---------------------------------------------------------------------------------------------------


def _read(inbox: SimpleQueue[orders.Order]) -> None:
    """Take orders; without a master there is nothing more to do, whatever is under way."""
    for line in sys.stdin.buffer:
        inbox.put(orders.order_decoder.decode(line))
    os._exit(0)


def main() -> None:
    """Obey until told to stop."""
    logging.basicConfig(level=logging.ERROR)
    inbox: SimpleQueue[orders.Order] = SimpleQueue()
    threading.Thread(target=_read, args=(inbox,), daemon=True).start()
    actor = Actor()
    while True:
        order = inbox.get()
        try:
            answer = actor.obey(order)
        except Exception as error:
            logging.getLogger("zkms.bench").exception("an order failed")
            answer = orders.Failed(f"{type(error).__name__}: {error}")
        sys.stdout.buffer.write(orders.encode(answer) + b"\n")
        sys.stdout.buffer.flush()
        if isinstance(order, orders.Stop):
            return


if __name__ == "__main__":
    main()
