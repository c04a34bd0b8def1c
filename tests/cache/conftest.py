"""What the tests of the cache share: caches on buses of their own, a proxy, and another program to meddle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import zkms
from tests.support.blocking import BlockingCache, EventLoop
from tests.support.buses import Buses, Connect, Eventually
from zkms.cache import Cache
from zkms.server.server import Server
from zkms.testing import Proxy

ON_ASYNCIO_TOO = {
    "test_a_write_on_one_node_is_seen_on_all",
    "test_the_own_value_is_dropped_before_invalidate_returns",
    "test_several_keys_tags_and_everything_can_be_invalidated",
    "test_an_outcome_says_who_has_not_dropped_it",
    "test_a_closed_node_is_not_waited_for",
    "test_one_thread_loads_and_the_others_wait_for_it",
    "test_what_a_loader_raises_is_passed_on_and_not_kept",
    "test_a_loader_that_raises_a_timeout_of_its_own_is_not_mistaken",
    "test_a_loader_that_asks_for_its_own_key_is_told_so",
    "test_a_cache_may_have_a_loader_of_its_own",
    "test_put_keeps_here_and_drops_elsewhere",
    "test_invalidations_of_one_writer_apply_in_order",
    "test_a_key_that_cannot_travel_is_refused_by_every_call",
    "test_what_was_invalidated_is_sent_before_the_bus_closes",
    "test_a_value_that_was_being_loaded_when_it_changed_is_not_kept",
    "test_without_tickets_the_old_value_would_stay",
    "test_a_reader_that_comes_after_an_invalidation_does_not_join_an_older_load",
    "test_a_node_that_is_cut_off_serves_for_max_staleness_and_then_asks",
    "test_a_node_cut_off_for_longer_than_its_session_serves_nothing_old",
    "test_an_expired_session_flushes_before_anything_is_served",
    "test_an_invalidation_that_cannot_be_read_flushes",
    "test_a_writer_that_is_cut_off_is_told_in_time_and_its_invalidation_is_tried_on",
    "test_a_node_that_dies_is_waited_for_no_longer_than_it_could_serve",
}
"""Tests that run on zkms.aio.Cache as well: those about what a cache does, not about how threads use it."""
MakeCache = Callable[..., Cache]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some tests run on zkms.aio as well."""
    if metafunc.function.__name__ in ON_ASYNCIO_TOO and "api" in metafunc.fixturenames:
        metafunc.parametrize("api", ["threads", "asyncio"], indirect=True)


@pytest.fixture
def connect(
    zookeeper: Server, zookeeper_root: str, proxy: Proxy, event_loop_thread: EventLoop | None
) -> Iterator[Connect]:
    """Connect a bus under the test's root; closed afterwards, as far as that is possible."""
    buses = Buses(zookeeper.hosts, zookeeper_root, event_loop_thread, cleaner=False)
    yield buses
    proxy.heal()  # so that they can say goodbye
    with suppress(zkms.ZkmsError):
        buses.close()


@pytest.fixture
def node(connect: Connect, eventually: Eventually, event_loop_thread: EventLoop | None) -> MakeCache:
    """Another node: the cache "users" on a bus of its own. `bus=` takes options of connect()."""

    def make(bus: dict[str, Any] | None = None, name: str = "users", **options: Any) -> Cache:
        own: Any = connect(**(bus or {}))
        loop = event_loop_thread
        cache: Any = zkms.Cache(own, name, **options) if loop is None else BlockingCache(loop, own, name, **options)
        eventually(lambda: cache.trusted, what="trust")
        return cache

    return make


class Database:
    """What is cached: rows, and a count of how often each was read."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}
        self.reads: list[Any] = []

    def load(self, key: Any) -> Any:
        """As a loader: the row now."""
        self.reads.append(key)
        return self.rows.get(key)


@pytest.fixture
def database() -> Database:
    """A database of the test's own."""
    return Database()
