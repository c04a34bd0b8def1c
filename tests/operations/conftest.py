"""What the tests of operations share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import zkms
from zkms.config import Config
from zkms.session import Session
from zkms.testing.server import Server
from zkms.tree import Tree


@pytest.fixture
def session(zookeeper: Server, zookeeper_root: str) -> Iterator[Session]:
    """A session as the command line has it."""
    opened = Session(Config(hosts=zookeeper.hosts, root=zookeeper_root, cleaner=False))
    opened.start()
    yield opened
    opened.close()


@pytest.fixture
def tree(zookeeper_root: str) -> Tree:
    """Of the test's root."""
    return Tree(zookeeper_root)


@pytest.fixture
def other(zookeeper_root: str) -> Tree:
    """Another root, empty."""
    return Tree(f"{zookeeper_root}/restored")


@pytest.fixture
def beside(zookeeper: Server, other: Tree) -> Iterator[zkms.Bus]:
    """A bus on the other root."""
    with zkms.connect(zookeeper.hosts, root=other.root, cleaner=False) as connected:
        yield connected


def drain(bus: zkms.Bus, topic: str, *, timeout: float = 1.0, **options: object) -> list[zkms.Message]:
    """All that waits, acked."""
    sub = bus.subscribe(topic, **options)  # type: ignore[call-overload]
    found = []
    while messages := sub.fetch(500, timeout=timeout):
        sub.ack(messages)
        found += messages
    sub.close()
    return found
