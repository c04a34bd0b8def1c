"""The backend for dogpile.cache, between processes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from dogpile.cache import make_region

import zkms
from tests.integrations.conftest import Process, pair
from zkms.integrations.dogpile import ZkmsInvalidator
from zkms.server.server import Server

Two = tuple[Process, Process]


@pytest.fixture(scope="module")
def nodes(zookeeper: Server) -> Iterator[Two]:
    """Two processes with a region each."""
    yield from pair(zookeeper, "dogpile_node")


@pytest.fixture
def unguarded(zookeeper: Server) -> Iterator[Two]:
    """Two processes, of which one stores whatever it is given."""
    yield from pair(zookeeper, "dogpile_node", "unguarded")


def test_a_write_in_one_process_is_seen_by_the_other(nodes: Two) -> None:
    """set(), delete(), their multi forms, and invalidate(), hard and soft."""
    one, other = nodes
    for drop in (
        lambda: one.set("user", "new"),
        lambda: one.delete("user"),
        lambda: one.set_multi({"user": "new", "more": 1}),
        lambda: one.delete_multi(["nobody", "user"]),
        lambda: one.invalidate(),
        lambda: one.invalidate(hard=False),
    ):
        one.delete("user")
        assert other.create("user", "old") == "old"
        assert other.get("user") == "old"
        drop()
        assert other.get("user") is None


def test_what_is_created_in_one_process_leaves_the_other_alone(nodes: Two) -> None:
    """Both create; both keep what they have."""
    for each in nodes:
        assert each.get("alone") is None
        assert each.create("alone", "row") == "row"
        assert each.create_multi(["several", "more"], "row") == ["row", "row"]
    for each in nodes:
        assert [each.get(key) for key in ("alone", "several", "more")] == ["row"] * 3


def test_expiry_in_one_process_does_not_empty_the_other(nodes: Two) -> None:
    """What has expired is created again, and told nobody."""
    one, other = nodes
    for each in nodes:
        assert each.create("expiring", "row") == "row"
    assert one.create("expiring", "row again", 0.0) == "row again"
    assert one.get("expiring") == "row again"
    assert other.get("expiring") == "row"


def test_a_set_after_a_miss_is_a_write_all_the_same(nodes: Two) -> None:
    """Only what dogpile has locked is being created."""
    one, other = nodes
    assert one.get("missed") is None
    assert other.create("missed", "old") == "old"
    one.set("missed", "new")
    assert other.get("missed") is None


def overtaken(one: Process, other: Process) -> Any:
    """One creates while the other changes; what one has afterwards."""
    one.begin_creating("overtaken", "loaded before that")
    other.delete("overtaken")  # returns when everybody has dropped it
    one.end_creating()
    return one.get("overtaken")


def test_a_value_that_was_overtaken_is_not_stored(nodes: Two) -> None:
    """An invalidation while it is created wins."""
    assert overtaken(*nodes) is None


def test_without_tickets_the_overtaken_value_would_be_stored(unguarded: Two) -> None:
    """So the test above does find it."""
    assert overtaken(*unguarded) == "loaded before that"


def test_threads_create_a_value_once_and_cannot_change_it(zookeeper: Server, zookeeper_root: str, opened: None) -> None:
    """dogpile's lock works as ever; values are copied."""
    region = make_region().configure(
        "zkms",
        arguments={"hosts": zookeeper.hosts, "root": zookeeper_root, "session_timeout": 30.0, "max_staleness": 15.0},
    )
    created: list[int] = []
    begun = threading.Event()

    @region.cache_on_arguments()
    def load(number: int) -> list[int]:
        begun.wait(30)
        created.append(number)
        return [number]

    threads = [threading.Thread(target=load, args=(1,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join()
    assert created == [1]
    load(1).append(2)
    assert load(1) == [1]
    load.invalidate(1)
    assert load(1) == [1]
    assert created == [1, 1]


def test_the_invalidator_wants_the_backend(opened: None) -> None:
    """With another one it could not keep its word."""
    region = make_region()
    region.configure("dogpile.cache.memory", region_invalidator=ZkmsInvalidator(region))
    with pytest.raises(zkms.InvalidArgument, match="configured with 'zkms'"):
        region.invalidate()
