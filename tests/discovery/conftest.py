"""What the tests of looking around share: buses under the test's root that do not clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zkms
from zkms import Bus
from zkms.server.server import Server

Connect = Callable[..., Bus]
Eventually = Callable[..., None]


@pytest.fixture
def connect(zookeeper: Server, zookeeper_root: str) -> Iterator[Connect]:
    """Connect a bus under the test's root; closed afterwards."""
    buses: list[Bus] = []

    def start(**options: Any) -> Bus:
        buses.append(zkms.connect(zookeeper.hosts, root=zookeeper_root, cleaner=False, **options))
        return buses[-1]

    yield start
    for bus in buses:
        bus.close(timeout=1.0)


@pytest.fixture
def bus(connect: Connect) -> Bus:
    """A bus that does not clean, so that nothing but the test changes the tree."""
    return connect()
