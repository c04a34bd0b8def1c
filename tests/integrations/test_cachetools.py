"""coherent() around a mapping of cachetools, with its decorator, between processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integrations.conftest import Process, pair
from tests.support.buses import Eventually
from zkms.server.server import Server

Two = tuple[Process, Process]


@pytest.fixture(scope="module")
def nodes(zookeeper: Server) -> Iterator[Two]:
    """Two processes."""
    yield from pair(zookeeper, "cachetools_node")


def test_what_one_process_drops_is_loaded_again_by_the_other(nodes: Two, eventually: Eventually) -> None:
    """By invalidate(), which waits, and by del, which does not; and what one loads leaves the other alone."""
    one, other = nodes
    for each in nodes:
        each.store("ada", "old")
        assert each.load("ada") == "old"
        each.store("ada", "new")
    assert [each.load("ada") for each in nodes] == ["old", "old"]
    assert one.drop("ada")
    assert [each.load("ada") for each in nodes] == ["new", "new"]
    other.store("ada", "newer")
    assert other.load("ada") == "new"
    one.delete("ada")
    eventually(lambda: other.load("ada") == "newer", what="the newer value")
