"""coherent(): what a mapping's own methods mean across the cluster, and how cachetools' decorators use them."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import cachetools
import pytest

from tests.support.buses import Connect, Eventually
from zkms.cache import Coherent, coherent
from zkms.cache.tickets import Leases
from zkms.errors import InvalidArgument


@pytest.fixture
def two(connect: Connect, eventually: Eventually) -> tuple[Coherent[Any, Any], Coherent[Any, Any]]:
    """The same mapping on two nodes, both trusted."""
    here, there = (coherent(cachetools.LRUCache(100), connect(), "users") for _ in range(2))
    eventually(lambda: here.cache.trusted and there.cache.trusted, what="trust")
    return here, there


def test_pop_drops_a_key_elsewhere_also_if_it_is_not_here(two: tuple[Coherent[Any, Any], Coherent[Any, Any]]) -> None:
    """As those who use cachetools do, with a default: pop(key, None)."""
    here, there = two
    there[1] = there[2] = "there"
    here[3] = there[3] = "both"
    assert here.pop(1, None) is None
    with pytest.raises(KeyError):
        here.pop(2)
    assert here.pop(3) == "both"
    assert here.invalidate("barrier", wait=30.0)
    assert list(there) == []
    here[1] = "new"
    assert here[1] == "new", "a pop is no miss that a later set would be checked against"


def load_with_a_lock_while_it_changes(here: Coherent[Any, Any], there: Coherent[Any, Any]) -> Any:
    """With `lock`, cachetools looks into the mapping once more before it stores; what is served in the end."""
    database = {1: "old"}
    loads: list[int] = []

    @cachetools.cached(here, lock=threading.RLock())
    def load(number: int) -> str:
        value = database[number]
        loads.append(number)
        if len(loads) == 1:
            database[number] = "new"
            assert there.invalidate(cachetools.keys.hashkey(number), wait=30.0)
        return value

    load(1)
    return load(1)


def test_a_load_that_was_overtaken_is_not_kept_by_a_decorator_that_looks_twice(
    two: tuple[Coherent[Any, Any], Coherent[Any, Any]],
) -> None:
    """The first miss counts: the second look has not loaded the value again."""
    assert load_with_a_lock_while_it_changes(*two) == "new"


def test_if_the_last_miss_counted_the_old_value_would_be_kept(
    two: tuple[Coherent[Any, Any], Coherent[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which shows that the test above sees it."""
    note = Leases.note

    def forgetful(self: Leases, key: Any, ticket: int) -> None:
        self.take(key)
        note(self, key, ticket)

    monkeypatch.setattr(Leases, "note", forgetful)
    assert load_with_a_lock_while_it_changes(*two) == "old"


def test_a_mapping_that_makes_values_by_itself_is_refused(connect: Connect) -> None:
    """Nobody knows when it made them, so an invalidation could not void them."""

    class Making(cachetools.LRUCache[int, int]):
        def __missing__(self, key: int) -> int:
            return key

    for mapping in (defaultdict(list), Making(10)):
        with pytest.raises(InvalidArgument, match="makes values by itself"):
            coherent(mapping, connect(), "users")
