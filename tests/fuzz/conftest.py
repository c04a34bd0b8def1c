"""What the tests with junk share. They run on an embedded ZooKeeper only: the junk is the same in a container."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkms
from zkms.server.server import Server
from zkms.tree.paths import Tree

Connect = Callable[..., zkms.Bus]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Not in containers as well."""
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        items[:] = [item for item in items if not _is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)


def _is_left_out(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    return item.path.parent.name == "fuzz" and params.get("zookeeper_kind") == "container"


@pytest.fixture
def connect(zookeeper: Server, zookeeper_root: str) -> Iterator[Connect]:
    """Connect a bus under the test's root; closed afterwards."""
    buses: list[zkms.Bus] = []

    def start(**options: Any) -> zkms.Bus:
        buses.append(zkms.connect(zookeeper.hosts, **{"root": zookeeper_root, "cleaner": False, **options}))
        return buses[-1]

    yield start
    for bus in buses:
        bus.close(timeout=1.0)


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
