"""What the tests of delayed messages share: buses under the test's root, and those of them that stand for election."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zkms
from zkms.testing import Proxy
from zkms.testing.server import Server
from zkms.tree import Tree

Connect = Callable[..., zkms.Bus]
Eventually = Callable[..., None]
TOPIC = "reminders"


class Listener:
    """Writes down what a subscription gets, and when."""

    def __init__(self, bus: zkms.Bus, topic: str = TOPIC, **options: Any) -> None:
        """Subscribe."""
        self.got: list[Any] = []
        self.at: list[float] = []
        self._lock = threading.Lock()
        self.subscription = bus.subscribe(topic, self._hear, **options)

    def _hear(self, message: zkms.Message) -> None:
        with self._lock:
            self.at.append(time.time())
            self.got.append(message.data)


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy of the test's own."""
    with Proxy(zookeeper.hosts) as running:
        yield running


@pytest.fixture
def connect(zookeeper: Server, zookeeper_root: str, proxy: Proxy) -> Iterator[Connect]:
    """Connect buses under the test's root; they stand for no election, unless asked to, and are closed afterwards."""
    buses: list[zkms.Bus] = []

    def start(*, through: Proxy | None = None, **options: Any) -> zkms.Bus:
        hosts = zookeeper.hosts if through is None else through.hosts
        defaults = {"root": zookeeper_root, "cleaner": False, "session_timeout": 8.0, "request_timeout": 30.0}
        buses.append(zkms.connect(hosts, **{**defaults, **options}))
        return buses[-1]

    yield start
    proxy.heal()
    for bus in buses:
        bus.close(timeout=1.0)


@pytest.fixture
def leader(connect: Connect) -> zkms.Bus:
    """A bus that stands for the cleaners' election, and publishes."""
    return connect(cleaner=True)


@pytest.fixture
def tree(zookeeper_root: str) -> Tree:
    """The paths of the test's root."""
    return Tree(zookeeper_root)
