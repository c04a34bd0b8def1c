"""What the tests of the bus share: more buses under the test's root, and a plain kazoo client to meddle with it.

Modules marked `on_asyncio_too` run on zkms.aio as well, through blocking.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from kazoo.client import KazooClient

import zkms
from zkms import Bus
from zkms.server.server import Server
from zkms.tree.paths import Tree

from .blocking import BlockingBus, EventLoop

Connect = Callable[..., Bus]
Eventually = Callable[..., None]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of a module marked `on_asyncio_too` on zkms.aio as well, but for those marked `of_threads`."""
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    if "api" in metafunc.fixturenames and "on_asyncio_too" in marks:
        metafunc.parametrize("api", ["threads", "asyncio"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What asyncio adds has nothing to do with where the server runs: not in containers as well."""
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        items[:] = [item for item in items if not _is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)


def _is_left_out(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    if params.get("api") != "asyncio":
        return False
    return params.get("zookeeper_kind") == "container" or item.get_closest_marker("of_threads") is not None


@pytest.fixture
def api(request: pytest.FixtureRequest) -> str:
    """What the test's buses are made by: "threads" is zkms, "asyncio" is zkms.aio on an event loop of the test's."""
    return str(getattr(request, "param", "threads"))


@pytest.fixture
def event_loop_thread() -> Iterator[EventLoop]:
    """An event loop that runs as long as the test does."""
    loop = EventLoop()
    yield loop
    loop.close()


@pytest.fixture
def connect(request: pytest.FixtureRequest, zookeeper: Server, zookeeper_root: str, api: str) -> Iterator[Connect]:
    """Connect another bus under the test's root; closed afterwards."""
    buses: list[Bus] = []
    loop = request.getfixturevalue("event_loop_thread") if api == "asyncio" else None

    def start(**options: Any) -> Bus:
        settings: dict[str, Any] = {"hosts": zookeeper.hosts, "root": zookeeper_root, "cleaner": False, **options}
        buses.append(zkms.connect(**settings) if loop is None else cast(Bus, BlockingBus(loop, **settings)))
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
