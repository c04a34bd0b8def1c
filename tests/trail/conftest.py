"""What the tests of trails share: buses that record, and a look at what they recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import zkms
from zkms.server.server import Server
from zkms.trail.event import Event
from zkms.trail.export.reader import TrailFile

Connect = Callable[..., zkms.Bus]


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    """A directory to record into, which does not exist yet."""
    return tmp_path / "trail"


@pytest.fixture
def connect(zookeeper: Server, zookeeper_root: str, trail: Path) -> Iterator[Connect]:
    """Connect buses that record, under the test's root; closed afterwards."""
    buses: list[zkms.Bus] = []

    def start(**options: object) -> zkms.Bus:
        settings = {"hosts": zookeeper.hosts, "root": zookeeper_root, "cleaner": False, "trail": trail, **options}
        buses.append(zkms.connect(**settings))
        return buses[-1]

    yield start
    for bus in buses:
        bus.close(timeout=1.0)


def read(*paths: Path) -> list[Event]:
    """All events of these files, or of the files in these directories; a bad line fails the test."""
    events: list[Event] = []
    for path in paths:
        files = sorted(path.glob("*.jsonl*")) if path.is_dir() else [path]
        for file in files:
            for event in TrailFile(file):
                assert isinstance(event, Event), event
                events.append(event)
    return events
