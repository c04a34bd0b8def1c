"""asyncio is about as fast as threads: measured side by side, since only the ratio means something."""

from __future__ import annotations

import asyncio
import threading
import time

import zkms
import zkms.aio
from zkms import Message
from zkms.testing.server import Server

from .conftest import Connect, run

MESSAGES = 50_000
MOST_ROUNDS = 8
ENOUGH = 0.3
"""It is about 0.8 on a machine that does nothing else; this is for those that do."""


async def with_asyncio(connect: Connect) -> float:
    """Messages per second from publish_many to a handler."""
    async with connect() as bus:
        heard = 0
        done = asyncio.Event()

        async def handler(message: Message) -> None:
            nonlocal heard
            heard += 1
            if heard == MESSAGES:
                done.set()

        await bus.subscribe("speed", handler)
        began = time.perf_counter()
        await bus.publish_many("speed", range(MESSAGES))
        await done.wait()
        return MESSAGES / (time.perf_counter() - began)


def with_threads(hosts: str, root: str) -> float:
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
        began = time.perf_counter()
        bus.publish_many("speed", range(MESSAGES))
        assert done.wait(60)
        return MESSAGES / (time.perf_counter() - began)


def test_asyncio_keeps_up_with_threads(connect: Connect, zookeeper: Server, zookeeper_root: str) -> None:
    """End to end, in turns; the best of each, as whatever else runs here can only slow one of them down."""
    threads = asynchronous = 0.0
    for number in range(MOST_ROUNDS):
        threads = max(threads, with_threads(zookeeper.hosts, zookeeper_root))
        asynchronous = max(asynchronous, run(with_asyncio(connect)))
        if number > 0 and asynchronous > ENOUGH * threads:
            break
    print(f"threads {threads:,.0f}/s, asyncio {asynchronous:,.0f}/s")
    assert asynchronous > ENOUGH * threads
