"""What the tests of the bus share: more buses under the test's root, and a plain kazoo client to meddle with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

import zkms
from zkms import Bus
from zkms.testing.server import Server
from zkms.tree import Tree

Connect = Callable[..., Bus]
Eventually = Callable[..., None]


@pytest.fixture
def connect(zookeeper: Server, zookeeper_root: str) -> Iterator[Connect]:
    """Connect another bus under the test's root; closed afterwards."""
    buses: list[Bus] = []

    def start(**options: object) -> Bus:
        settings = {"hosts": zookeeper.hosts, "root": zookeeper_root, "cleaner": False, **options}
        buses.append(zkms.connect(**settings))
        return buses[-1]

    yield start
    for bus in buses:
        bus.close(timeout=1.0)


@pytest.fixture
def bus(connect: Connect) -> Bus:
    """A bus that does not clean, so that nothing but the test changes the tree."""
    return connect()


@pytest.fixture
def tree(zookeeper_root: str) -> Tree:
    """The paths of the test's root."""
    return Tree(zookeeper_root)


@pytest.fixture
def raw(zookeeper: Server) -> Iterator[KazooClient]:
    """Another program on the same ZooKeeper, which does as it likes."""
    client = KazooClient(zookeeper.hosts)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()
