"""What the tests of backup and restore share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

import zkms
from zkms.server.server import Server
from zkms.tree.paths import Tree


@pytest.fixture
def connect_options() -> dict[str, Any]:
    """As a user connects: the bus may clean."""
    return {"cleaner": True}


@pytest.fixture
def other(zookeeper_root: str) -> Tree:
    """Another root, empty."""
    return Tree(f"{zookeeper_root}/restored")


@pytest.fixture
def beside(zookeeper: Server, other: Tree) -> Iterator[zkms.Bus]:
    """A bus on the other root."""
    with zkms.connect(zookeeper.hosts, root=other.root, cleaner=False) as connected:
        yield connected


@pytest.fixture
def lock(zookeeper: Server) -> Iterator[Callable[[str], str]]:
    """Put an entry into a queue that only somebody else may read; returns its path."""
    client = KazooClient(zookeeper.hosts)
    client.start(timeout=20)
    locked: list[str] = []

    def make(queue: str) -> str:
        acl = [make_digest_acl("somebody", "else", all=True)]
        locked.append(client.create(f"{queue}/f.1.50.", b"?", sequence=True, acl=acl))
        return locked[-1]

    yield make
    for path in locked:  # or the test's root could not be removed
        client.delete(path)
    client.stop()
    client.close()


def drain(bus: zkms.Bus, topic: str, *, timeout: float = 1.0, **options: object) -> list[zkms.Message]:
    """All that waits, acked."""
    sub = bus.subscribe(topic, **options)  # type: ignore[call-overload]
    found = []
    while messages := sub.fetch(500, timeout=timeout):
        sub.ack(messages)
        found += messages
    sub.close()
    return found
