"""What differs for the embedded ZooKeeper: its clients are kazoo's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient


@pytest.fixture
def connect(kazoo_clients: Callable[..., KazooClient]) -> Callable[..., KazooClient]:
    """Here it is kazoo that connects: there is no zkms in it."""
    return kazoo_clients
