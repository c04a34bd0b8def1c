"""What the tests of zkms.aio share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import pytest

import zkms.aio
from zkms.aio.connecting import Connecting
from zkms.server.server import Server

T = TypeVar("T")
Connect = Callable[..., Connecting]
LONGEST = 120.0
"""Seconds that a test may take: one that hangs should say where."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run(), but not for ever."""
    return asyncio.run(asyncio.wait_for(main, LONGEST))


async def until(condition: Callable[[], object], what: str = "the condition", timeout: float = 30.0) -> None:
    """Wait until a condition holds, with a deadline."""
    try:
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true in {timeout:g} s") from None


@pytest.fixture
def connect(zookeeper: Server, zookeeper_root: str) -> Connect:
    """Connect under the test's root, without a cleaner, so that nothing but the test changes the tree."""
    return partial(zkms.aio.connect, hosts=zookeeper.hosts, root=zookeeper_root, cleaner=False)
