"""What the tests of the test servers share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError


@pytest.fixture
def connect(kazoo_clients: Callable[..., KazooClient]) -> Callable[..., KazooClient]:
    """Here it is kazoo that connects: there is no zkms in it."""
    return kazoo_clients


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
