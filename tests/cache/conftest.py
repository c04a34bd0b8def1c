"""What the tests of the cache share: caches on buses of their own, a proxy, and another program to meddle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkms
from zkms.cache import Cache
from zkms.testing import Proxy
from zkms.testing.server import Server

MakeCache = Callable[..., Cache]
Eventually = Callable[..., None]


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy of the test's own."""
    with Proxy(zookeeper.hosts) as running:
        yield running


@pytest.fixture
def connect(zookeeper: Server, zookeeper_root: str, proxy: Proxy) -> Iterator[Callable[..., zkms.Bus]]:
    """Connect a bus under the test's root; closed afterwards."""
    buses: list[zkms.Bus] = []

    def start(**options: Any) -> zkms.Bus:
        settings = {"hosts": zookeeper.hosts, "root": zookeeper_root, "cleaner": False, **options}
        buses.append(zkms.connect(**settings))
        return buses[-1]

    yield start
    proxy.heal()  # so that they can say goodbye
    for bus in buses:
        with suppress(zkms.ZkmsError):
            bus.close(timeout=1.0)


@pytest.fixture
def bus(connect: Callable[..., zkms.Bus]) -> zkms.Bus:
    """A bus that does not clean, so that nothing but the test changes the tree."""
    return connect()


@pytest.fixture
def node(connect: Callable[..., zkms.Bus], eventually: Eventually) -> MakeCache:
    """Another node: the cache "users" on a bus of its own. `bus=` takes options of connect()."""

    def make(bus: dict[str, Any] | None = None, name: str = "users", **options: Any) -> Cache:
        cache = zkms.Cache(connect(**(bus or {})), name, **options)
        eventually(lambda: cache.trusted, what="trust")
        return cache

    return make


@pytest.fixture
def raw(zookeeper: Server) -> Iterator[KazooClient]:
    """Another program on the same ZooKeeper, which does as it likes."""
    client = KazooClient(zookeeper.hosts)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()


class Database:
    """What is cached: rows, and a count of how often each was read."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}
        self.reads: list[Any] = []

    def load(self, key: Any) -> Any:
        """As a loader: the row now."""
        self.reads.append(key)
        return self.rows.get(key)


@pytest.fixture
def database() -> Database:
    """A database of the test's own."""
    return Database()
