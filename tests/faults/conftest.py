"""What the tests of faults share: buses that are closed afterwards, and an audience that writes down what it gets.

In a test that asks for `audited` the buses leave a trail, and the trail is held against the guarantees in the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import zkms
from tests.trail.oracle import audit, exported
from zkms.server.server import Server
from zkms.testing import Proxy

Connect = Callable[..., zkms.Bus]


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy of the test's own."""
    with Proxy(zookeeper.hosts) as running:
        yield running


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Where the buses of a test that asks for this leave their trail."""
    return tmp_path / "trail"


@pytest.fixture
def audited(recorded: Path, tmp_path: Path) -> Iterator[None]:
    """When all buses are closed, their trail has no violation in it, whatever was done to them."""
    yield
    rows = exported(recorded, tmp_path / "exported")
    assert {"published", "delivered"} <= {row["event"] for row in rows}
    assert audit(rows) == set()


@pytest.fixture
def connect(request: pytest.FixtureRequest, zookeeper: Server, zookeeper_root: str, proxy: Proxy) -> Iterator[Connect]:
    """Connect buses under the test's root, closed after it; `through` a proxy, or directly."""
    buses: list[zkms.Bus] = []
    trail = request.getfixturevalue("recorded") if "recorded" in request.fixturenames else None

    def start(*, through: Proxy | None = None, **options: object) -> zkms.Bus:
        hosts = zookeeper.hosts if through is None else through.hosts
        defaults = {"root": zookeeper_root, "cleaner": False, "session_timeout": 8.0, "request_timeout": 20.0}
        defaults["trail"] = trail
        bus = zkms.connect(hosts, **{**defaults, **options})  # type: ignore[arg-type]
        buses.append(bus)
        return bus

    yield start
    proxy.heal()  # so that they can say goodbye
    for bus in buses:
        with suppress(zkms.ZkmsError):
            bus.close()


class Listener:
    """One subscriber with a bus of its own, and all that it got, in order."""

    def __init__(self, bus: zkms.Bus, topic: str, **options: object) -> None:
        """Subscribe."""
        self.got: list[object] = []
        self.gaps: list[str] = []
        self._changed = threading.Condition()
        self.bus = bus
        self.subscription = bus.subscribe(topic, self._hear, on_gap=lambda gap: self.gaps.append(gap.reason), **options)  # type: ignore[arg-type]

    def _hear(self, message: zkms.Message) -> None:
        with self._changed:
            self.got.append(message.data)
            self._changed.notify_all()

    def await_last(self, last: object, timeout: float = 30.0) -> list[object]:
        """All that came, once `last` has come."""
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self.got) and self.got[-1] == last, timeout), (
                f"{last!r} did not come; the last were {self.got[-3:]}"
            )
            return [*self.got]


@pytest.fixture
def audience(connect: Connect) -> Callable[..., list[Listener]]:
    """Subscribers to a topic, each with a bus of its own, connected without the proxy."""

    def assemble(topic: str, count: int = 3) -> list[Listener]:
        return [Listener(connect(), topic) for _ in range(count)]

    return assemble
