"""The backend for Flask-Caching, between processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integrations.conftest import Process, pair
from tests.support.buses import Eventually
from zkms.server.server import Server

Two = tuple[Process, Process]


@pytest.fixture(scope="module")
def nodes(zookeeper: Server) -> Iterator[Two]:
    """Two processes with Flask-Caching."""
    yield from pair(zookeeper, "flask_node")


@pytest.fixture
def unguarded(zookeeper: Server) -> Iterator[Two]:
    """Two processes, of which one stores whatever it is given."""
    yield from pair(zookeeper, "flask_node", "unguarded")


def test_a_write_in_one_process_is_seen_by_the_other(nodes: Two) -> None:
    """set(), delete(), delete_many(), set_many() and clear() drop what the other has."""
    one, other = nodes
    for drop in (
        lambda: one.set("user", "new"),
        lambda: one.delete("user"),
        lambda: one.delete_many("nobody", "user"),
        lambda: one.set_many({"user": "new", "more": 1}),
        lambda: one.clear(),
        lambda: one.counted("user", 1),
    ):
        one.delete("user")
        assert other.add("user", "old")
        assert other.get("user") == "old"
        drop()
        assert not other.has("user")


@pytest.mark.parametrize("names", [("user",), ()], ids=["one-result", "all-results"])
def test_a_memoized_function_is_dropped_in_all_processes(nodes: Two, names: tuple[str, ...]) -> None:
    """delete_memoized() with arguments and without; also by a process that has never called the function."""
    one, other = nodes
    other.store("user", "old")
    other.drop()
    assert other.load("user") == "old"
    other.store("user", "new")
    assert other.load("user") == "old", "it was not kept"
    one.drop(*names)
    assert other.load("user") == "new"


def test_a_page_is_cached_and_dropped(nodes: Two) -> None:
    """@cache.cached() on a view; its key is its address."""
    one, _ = nodes
    for each in nodes:
        each.store("apple", "old")
        assert each.page("apple") == "old"
        each.store("apple", "new")
    assert [each.page("apple") for each in nodes] == ["old", "old"], "a fill has dropped the other's"
    one.delete("view//row/apple")
    assert [each.page("apple") for each in nodes] == ["new", "new"]


def test_expiry_in_one_process_drops_nothing_in_the_other(nodes: Two, eventually: Eventually) -> None:
    """A time-out is nobody else's business; 0 is for ever."""
    one, other = nodes
    assert one.add("expiring", "row", 1)
    assert other.add("expiring", "row", 0)
    eventually(lambda: one.get("expiring") is None, what="expiry")
    assert one.set("expiring", "row again")
    assert other.get("expiring") == "row"


def overtaken(one: Process, other: Process) -> Any:
    """One loads while the other changes; what one has afterwards."""
    assert one.get("overtaken") is None
    other.delete("overtaken")  # returns when everybody has dropped it
    one.set("overtaken", "loaded before that")
    return one.get("overtaken")


def test_a_value_that_was_overtaken_is_not_stored(nodes: Two) -> None:
    """An invalidation between a miss and its set() wins."""
    assert overtaken(*nodes) is None


def test_without_tickets_the_overtaken_value_would_be_stored(unguarded: Two) -> None:
    """So the test above does find it."""
    assert overtaken(*unguarded) == "loaded before that"


def test_a_miss_in_an_earlier_request_does_not_make_a_write_a_fill(nodes: Two) -> None:
    """What a request has missed is forgotten at its end."""
    one, other = nodes
    assert one.miss_in_a_request("later") is None
    assert other.add("later", "old")
    one.set("later", "new")
    assert other.get("later") is None


def test_counting_and_many_at_once(nodes: Two) -> None:
    """As Flask-Caching has it: a counter begins by itself."""
    one, _ = nodes
    assert [one.counted("count", 2), one.counted("count", 3), one.counted("count", -1)] == [2, 5, 4]
    assert one.set_many({"a": 1, "b": 2}) == ["a", "b"]
    assert one.get_many("a", "nothing", "b") == [1, None, 2]
    assert one.get_dict("a", "b") == {"a": 1, "b": 2}
