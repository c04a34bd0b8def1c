"""What the tests of delayed messages share: buses under the test's root, and those of them that stand for election."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from zkms_cleaner import Election

import zkms
from zkms.server.server import Server
from zkms.testing import Proxy
from zkms.tree.paths import Tree

Connect = Callable[..., zkms.Bus]
Eventually = Callable[..., None]
TOPIC = "reminders"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where the server runs makes a difference to faults alone: the rest is not run in containers as well."""
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        items[:] = [item for item in items if not _is_left_out(item)]
        config.hook.pytest_deselected(items=left_out)


def _is_left_out(item: pytest.Item) -> bool:
    params = getattr(getattr(item, "callspec", None), "params", {})
    here = item.path.parent == Path(__file__).parent
    return here and item.path.stem != "test_faults" and params.get("zookeeper_kind") == "container"


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
def leader(connect: Connect, eventually: Eventually) -> zkms.Bus:
    """A bus that leads the cleaners, and publishes."""
    bus = connect(cleaner=True)
    eventually(lambda: bus.parts.cleaner is not None and bus.parts.cleaner.leading)
    return bus


class Sleeper:
    """Leads the cleaners and does nothing: what is due waits, until the lead is given away."""

    def __init__(self, bus: zkms.Bus) -> None:
        """Take the lead."""
        self._election = Election(bus.parts.session, bus.parts.tree, bus.client_id)
        lead = self._election.lead()
        assert lead is not None
        self.lead = lead

    def give_way(self) -> None:
        """Let the next one lead."""
        self._election.resign()


@pytest.fixture
def sleeper(connect: Connect) -> Sleeper:
    """A leader that moves nothing; messages can be delayed."""
    return Sleeper(connect())


@pytest.fixture
def tree(zookeeper_root: str) -> Tree:
    """The paths of the test's root."""
    return Tree(zookeeper_root)
