"""The backend for Django, by Django's own contract, and between processes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.cache.backends.base import BaseCache, CacheKeyWarning
from django.core.cache.backends.locmem import LocMemCache

import zkms
from tests.integrations.conftest import Process, pair
from tests.support.buses import Eventually
from zkms.integrations.django import ZkmsCache
from zkms.server.server import Server
from zkms.testing import Proxy

Make = Callable[..., ZkmsCache]
PATIENT = {"cleaner": False, "session_timeout": 30.0, "max_staleness": 15.0}
"""On a busy machine, trust must not be lost in the middle of a test."""


@pytest.fixture
def make(zookeeper: Server, zookeeper_root: str, opened: None, eventually: Eventually) -> Make:
    """A backend in this process, ready to keep values."""

    def start(**params: Any) -> ZkmsCache:
        options = {"root": zookeeper_root, **PATIENT, **params.pop("OPTIONS", {})}
        cache = ZkmsCache(zookeeper.hosts, {**params, "OPTIONS": options})
        eventually(lambda: cache._backend.cache.trusted, what="trust")
        return cache

    return start


@pytest.fixture
def cache(make: Make) -> ZkmsCache:
    """One with defaults."""
    return make()


@pytest.fixture(scope="module")
def nodes(zookeeper: Server) -> Iterator[tuple[Process, Process]]:
    """Two processes with Django, whose requests have all ended."""
    yield from pair(zookeeper, "django_node")


@pytest.fixture
def unguarded(zookeeper: Server) -> Iterator[tuple[Process, Process]]:
    """Two processes, of which one stores whatever it is given."""
    yield from pair(zookeeper, "django_node", "unguarded")


# -- between processes ---------------------------------------------------------------------------------------------


def test_a_write_in_one_process_is_seen_by_the_other(nodes: tuple[Process, Process]) -> None:
    """set(), delete(), delete_many(), incr() and clear() drop what the other has."""
    one, other = nodes
    for drop in (
        lambda: one.set("user", "new"),
        lambda: one.delete("user"),
        lambda: one.delete_many(["nobody", "user"]),
        lambda: one.set_many({"user": "new", "more": 1}),
        lambda: one.clear(),
        lambda: (one.set("user", 1), other.add("user", 1), one.incr("user")),
        lambda: one.set("user", "expired", 0),
    ):
        one.delete("user")
        assert other.add("user", "old")
        assert other.get("user") == "old"
        drop()
        assert other.get("user") is None
        other.end_request()


def test_filling_the_cache_leaves_the_other_process_alone(nodes: tuple[Process, Process]) -> None:
    """get() that misses, then set(): the other has loaded the same, and keeps it; also with get_or_set() and add()."""
    one, other = nodes
    for each in (one, other):
        assert each.get("filled") is None
        each.set("filled", "row")
        assert each.get_or_set("group", "row") == "row"
        assert each.add("role", "row")
    for each in (one, other):
        assert each.get_many(["filled", "group", "role"]) == {"filled": "row", "group": "row", "role": "row"}


def test_expiry_in_one_process_drops_nothing_in_the_other(
    nodes: tuple[Process, Process], eventually: Eventually
) -> None:
    """A timeout is nobody else's business."""
    one, other = nodes
    assert one.add("expiring", "row", 0.05)
    assert other.add("expiring", "row", None)
    eventually(lambda: one.get("expiring") is None, what="expiry")
    one.set("expiring", "row again")
    assert other.get("expiring") == "row"


def overtaken(one: Process, other: Process) -> Any:
    """One loads while the other changes; what one has afterwards."""
    assert one.get("overtaken") is None
    other.delete("overtaken")  # returns when everybody has dropped it
    one.set("overtaken", "loaded before that")
    return one.get("overtaken")


def test_a_value_that_was_overtaken_is_not_stored(nodes: tuple[Process, Process]) -> None:
    """An invalidation between a miss and its set() wins."""
    assert overtaken(*nodes) is None


def test_without_tickets_the_overtaken_value_would_be_stored(unguarded: tuple[Process, Process]) -> None:
    """So the test above does find it."""
    assert overtaken(*unguarded) == "loaded before that"


def test_a_miss_in_an_earlier_request_does_not_make_a_write_a_fill(
    nodes: tuple[Process, Process],
) -> None:
    """Django closes its caches at the end of a request."""
    one, other = nodes
    assert one.get("later") is None
    one.end_request()
    assert other.add("later", "old")
    one.set("later", "new")
    assert other.get("later") is None


def test_an_overtaken_value_is_not_stored_however_many_were_missed(cache: ZkmsCache, bus: zkms.Bus) -> None:
    """More than are remembered: what was forgotten is checked as if it were the oldest."""
    other = zkms.Cache(bus, "django")
    keys = [f"many{number}" for number in range(400)]
    assert cache.get_many(keys) == {}
    assert other.invalidate(cache.make_key(keys[0]), wait=60.0)
    assert keys[0] in cache.set_many(dict.fromkeys(keys, "loaded before that"))
    assert cache.get(keys[0]) is None
    assert cache.get(keys[-1]) == "loaded before that"


# -- Django's contract ---------------------------------------------------------------------------------------------


def test_values_of_any_kind_and_none_come_back(cache: ZkmsCache) -> None:
    """None that is kept is not the default."""
    for value in (None, 0, "", b"bytes", {"a": [1]}, {1, 2}, 1.5):
        cache.set("key", value)
        assert cache.get("key", "default") == value
    assert cache.get("nothing", "default") == "default"
    assert "key" in cache
    assert "nothing" not in cache


def test_a_caller_cannot_change_what_is_kept(cache: ZkmsCache) -> None:
    """Copied on the way in and on the way out."""
    value = {"roles": ["reader"]}
    cache.set("user", value)
    value["roles"].append("writer")
    cache.get("user")["roles"].append("admin")
    assert cache.get("user") == {"roles": ["reader"]}


def test_timeouts(make: Make, eventually: Eventually) -> None:
    """By default, by call, none at all, and over at once."""
    cache = make(TIMEOUT=300)
    cache.set("default", 1)
    cache.set("short", 1, 0.05)
    cache.set("forever", 1, None)
    for over in (0, -1):
        cache.set("over", 1)
        cache.set("over", 1, over)
        assert "over" not in cache
        assert not cache.add("over", 1, over) or "over" not in cache
    eventually(lambda: "short" not in cache)
    assert cache.get_many(["default", "short", "forever"]) == {"default": 1, "forever": 1}


def test_touch_changes_the_timeout_of_what_is_there(cache: ZkmsCache, eventually: Eventually) -> None:
    """True if there was a value."""
    cache.set("key", 1, None)
    assert cache.touch("key", 0.05)
    eventually(lambda: "key" not in cache)
    assert not cache.touch("key")
    cache.set("key", 2, 1000)
    assert cache.touch("key", 0)
    assert "key" not in cache


def test_add_incr_and_decr(cache: ZkmsCache) -> None:
    """add() only where there is nothing; incr() only where there is something, whose timeout stays."""
    assert cache.add("count", 1)
    assert not cache.add("count", 5)
    assert cache.incr("count") == 2
    assert cache.incr("count", 10) == 12
    assert cache.decr("count", 2) == 10
    assert cache.get("count") == 10
    with pytest.raises(ValueError, match="not found"):
        cache.incr("nothing")


@pytest.mark.parametrize("seed", range(3))
def test_it_answers_as_the_memory_cache_of_django_does(cache: ZkmsCache, seed: int) -> None:
    """All of Django's API, in any order, beside LocMemCache: in one process nobody can tell them apart."""
    theirs = LocMemCache(f"beside-{seed}", {})
    chance = random.Random(seed)
    values = [1, 5, "x", None, [1, 2], {"a": 1}, 0, b"\0", 3.5, True]

    def one_step() -> tuple[str, list[Any], dict[str, Any]]:
        name, version = chance.choice(["a", "b", "c"]), {"version": chance.choice([None, None, 1, 2])}
        value, several = chance.choice(values), chance.sample(["a", "b", "c"], 2)
        steps: list[tuple[str, list[Any], dict[str, Any]]] = [
            ("get", [name], version),
            ("get", [name, "default"], version),
            ("set", [name, value, chance.choice([300, None])], version),
            ("add", [name, value, chance.choice([300, None])], version),
            ("get_or_set", [name, lambda: value], version),
            ("touch", [name, chance.choice([300, None])], version),
            ("has_key", [name], version),
            ("incr", [name, chance.choice([1, -3])], version),
            ("decr", [name], version),
            ("incr_version", [name], {"version": 1}),
            ("decr_version", [name], {"version": 2}),
            ("get_many", [several], version),
            ("set_many", [dict.fromkeys(several, value)], version),
            ("delete", [name], version),
            ("delete_many", [several], version),
            ("close", [], {}),
        ]
        return chance.choice(steps)

    def answer(backend: BaseCache, method: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return getattr(backend, method)(*args, **kwargs)
        except (ValueError, TypeError) as error:
            return type(error)

    for _ in range(300):
        method, args, kwargs = one_step()
        assert answer(cache, method, args, kwargs) == answer(theirs, method, args, kwargs), (method, args, kwargs)


def test_versions_and_prefixes_keep_keys_apart(make: Make) -> None:
    """Several of them share the process's memory."""
    cache, prefixed = make(), make(KEY_PREFIX="site", VERSION=2)
    cache.set("key", 1)
    cache.set("key", 2, version=2)
    prefixed.set("key", 3)
    assert (cache.get("key"), cache.get("key", version=2), prefixed.get("key")) == (1, 2, 3)
    assert cache.incr_version("key") == 2
    assert (cache.get("key"), cache.get("key", version=2)) == (None, 1)
    assert cache.delete("key", version=2)
    assert not cache.delete("key", version=2)
    cache.clear()
    assert prefixed.get("key") is None


def test_many_at_once(cache: ZkmsCache) -> None:
    """set_many() names what it could not keep; delete_many() does not mind what is not there."""
    assert cache.set_many({"a": 1, "b": 2, "c": 3}) == []
    assert cache.get_many(["a", "b", "nothing"]) == {"a": 1, "b": 2}
    cache.delete_many(["a", "nothing"])
    assert cache.get_many(["a", "b"]) == {"b": 2}
    assert cache.set_many({"b": 1}, timeout=0) == []
    assert cache.get("b") is None


def test_memory_is_bounded(make: Make) -> None:
    """MAX_ENTRIES, the least recently used first."""
    cache = make(OPTIONS={"MAX_ENTRIES": 10, "CULL_FREQUENCY": 3})
    cache.set_many({str(number): number for number in range(30)})
    assert len(cache.get_many([str(number) for number in range(30)])) == 10


def test_a_bad_key_is_warned_of_as_by_other_backends(cache: ZkmsCache) -> None:
    """Whatever memcached would not take."""
    with pytest.warns(CacheKeyWarning):
        cache.set("key with spaces", 1)
    with pytest.warns(CacheKeyWarning):
        assert cache.get("key with spaces") == 1


def test_the_asynchronous_methods(cache: ZkmsCache) -> None:
    """The same, awaited; a miss is remembered by the task."""

    async def use() -> list[Any]:
        assert await cache.aget("user") is None
        await cache.aset("user", 1)
        found = [await cache.aget("user"), await cache.aincr("user"), await cache.aget_or_set("more", lambda: 5)]
        await cache.adelete("user")
        return [*found, await cache.aget("user")]

    assert asyncio.run(use()) == [1, 2, 5, None]


def test_two_caches_of_one_name_must_agree(make: Make) -> None:
    """They would share what they keep."""
    make()
    with pytest.raises(zkms.InvalidArgument, match="name of its own"):
        make(OPTIONS={"MAX_ENTRIES": 10})
    make(OPTIONS={"MAX_ENTRIES": 10, "name": "small"})


@pytest.fixture
def rows() -> Iterator[Any]:
    """A table of Django's own, in a database in memory."""
    import django
    from django.conf import settings

    if not settings.configured:
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        settings.configure(DATABASES={"default": database}, INSTALLED_APPS=["django.contrib.contenttypes"])
        django.setup()
    from django.contrib.contenttypes.models import ContentType
    from django.db import connection

    with connection.schema_editor() as editor:
        editor.create_model(ContentType)
    yield ContentType.objects
    connection.close()


def test_a_queryset_is_kept_with_its_rows(cache: ZkmsCache, rows: Any) -> None:
    """As Django's own backends do: no query when it comes from the cache."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    rows.create(model="one", app_label="shop")
    cache.set("rows", rows.order_by("id"))
    with CaptureQueriesContext(connection) as queries:
        assert [row.model for row in cache.get("rows")] == ["one"]
    assert len(queries) == 0
    cache.get("rows")[0].model = "changed"
    assert [row.model for row in cache.get("rows")] == ["one"]


# -- without ZooKeeper ---------------------------------------------------------------------------------------------


def test_without_zookeeper_values_are_loaded_and_what_cannot_be_told_raises(
    zookeeper: Server, zookeeper_root: str, opened: None, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept, in particular not what was loaded while nobody told us of changes."""
    monkeypatch.setattr("zkms.integrations.process.PAUSE", 0.0)
    with Proxy(zookeeper.hosts) as proxy:
        proxy.refuse()
        options = {"root": zookeeper_root, "cleaner": False, "connect_timeout": 0.3}
        cache = ZkmsCache(proxy.hosts, {"OPTIONS": options})
        assert cache.get("user", "default") == "default"
        cache.set("user", "loaded")
        assert not cache.add("user", "loaded")
        for tells in (lambda: cache.delete("user"), lambda: cache.set("group", "new"), cache.clear):
            with pytest.raises(zkms.ConnectionLost):
                tells()
        assert cache.get("user") is None
        proxy.heal()
        eventually(lambda: cache.has_key("probe") or cache.add("probe", 1), what="a connection")
        cache.set("user", "loaded while nobody told us")
        assert cache.get("user") is None
        cache.set("user", "loaded now")
        assert cache.get("user") == "loaded now"
        from zkms.integrations import close

        close()
