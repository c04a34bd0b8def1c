"""What the tests of the test servers share: plain kazoo clients, and waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError


@pytest.fixture
def connect() -> Iterator[Callable[..., KazooClient]]:
    """Connect a kazoo client that is closed after the test."""
    clients: list[KazooClient] = []

    def start(hosts: str, **options: object) -> KazooClient:
        client = KazooClient(hosts, **options)
        clients.append(client)
        client.start(timeout=20)
        return client

    yield start
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Wait until a condition holds, with a deadline."""

    def wait(condition: Callable[[], bool], timeout: float = 30.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.02)

    return wait


@pytest.fixture
def can_write() -> Callable[[str, str], bool]:
    """Try to write a znode through a client of its own, and tell whether it worked."""

    def attempt(hosts: str, path: str) -> bool:
        client = KazooClient(hosts, timeout=4.0)
        try:
            client.start(timeout=5)
            client.ensure_path_async(path).get(timeout=5)
            client.set_async(path, b"written").get(timeout=5)
        except (KazooException, KazooTimeoutError):
            return False
        finally:
            client.stop()
            client.close()
        return True

    return attempt
