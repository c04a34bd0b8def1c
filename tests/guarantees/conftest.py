"""What the tests of the guarantees share: buses through a proxy, an audience, programs to kill, and the audit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.audience import Listener
from tests.support.buses import Buses, Connect
from tests.support.oracle import audit, exported
from zkms.server.server import Server
from zkms.testing import Proxy

Run = Callable[..., "subprocess.Popen[str]"]
PROGRAMS = Path(__file__).parent / "programs"


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
    trail = request.getfixturevalue("recorded") if "recorded" in request.fixturenames else None
    options = {"cleaner": False, "session_timeout": 8.0, "request_timeout": 20.0, "trail": trail}
    buses = Buses(zookeeper.hosts, zookeeper_root, **options)
    yield buses
    proxy.heal()  # so that they can say goodbye
    buses.close_as_far_as_possible()


@pytest.fixture
def audience(connect: Connect) -> Callable[..., list[Listener]]:
    """Subscribers to a topic, each with a bus of its own, connected without the proxy."""

    def assemble(topic: str, count: int = 3) -> list[Listener]:
        return [Listener(connect(), topic) for _ in range(count)]

    return assemble


@pytest.fixture
def run(zookeeper: Server, zookeeper_root: str) -> Iterator[Run]:
    """Run a program of this directory; what is still alive after the test is killed."""
    processes: list[subprocess.Popen[str]] = []

    def start(program: str, *arguments: object) -> subprocess.Popen[str]:
        command = [sys.executable, PROGRAMS / program, zookeeper.hosts, zookeeper_root, *map(str, arguments)]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
