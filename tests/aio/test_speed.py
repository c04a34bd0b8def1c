"""asyncio is about as fast as threads: measured side by side, since only the ratio means something."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import NamedTuple

import zkms
import zkms.aio
from zkms import Message
from zkms.server.server import Server

from .conftest import Connect, run

MESSAGES = 50_000
ROUNDS = 3


class Speed(NamedTuple):
    """Of one run, from publish_many to a handler."""

    rate: float
    """Messages per second."""
    cost: float
    """Seconds of CPU for a message, in this process: others at work on the machine do not change it much."""


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def speed(self) -> Speed:
        """Up to now."""
        seconds, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        return Speed(MESSAGES / seconds, cpu / MESSAGES)


async def with_asyncio(connect: Connect) -> Speed:
    """With a coroutine function as handler."""
    async with connect() as bus:
        heard = 0
        done = asyncio.Event()

        async def handler(message: Message) -> None:
            nonlocal heard
            heard += 1
            if heard == MESSAGES:
                done.set()

        await bus.subscribe("speed", handler)
        watch = Stopwatch()
        await bus.publish_many("speed", range(MESSAGES))
        await done.wait()
        return watch.speed()


def with_threads(hosts: str, root: str) -> Speed:
    """The same with threads."""
    with zkms.connect(hosts, root=root, cleaner=False) as bus:
        heard = 0
        done = threading.Event()

        def handler(message: Message) -> None:
            nonlocal heard
            heard += 1
            if heard == MESSAGES:
                done.set()

        bus.subscribe("speed", handler)
        watch = Stopwatch()
        bus.publish_many("speed", range(MESSAGES))
        assert done.wait(60)
        return watch.speed()


def test_asyncio_keeps_up_with_threads(connect: Connect, zookeeper: Server, zookeeper_root: str) -> None:
    """End to end, in turns. About 0.8 by cost; the bounds are for machines that have other work to do."""
    threads: list[Speed] = []
    asynchronous: list[Speed] = []
    for _ in range(ROUNDS):
        threads.append(with_threads(zookeeper.hosts, zookeeper_root))
        asynchronous.append(run(with_asyncio(connect)))
    by_cost = min(speed.cost for speed in threads) / min(speed.cost for speed in asynchronous)
    by_rate = max(speed.rate for speed in asynchronous) / max(speed.rate for speed in threads)
    print(f"asyncio beside threads: {by_cost:.2f} by CPU, {by_rate:.2f} by rate")
    assert by_cost > 0.3
    assert by_rate > 0.05
