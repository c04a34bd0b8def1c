"""zkms.Cache as a program uses it, on a real ZooKeeper."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import cachetools
import pytest

import zkms
from tests.support.buses import Eventually
from zkms.cache import Cache, CacheEvent, InvalidKey, MissingExtra, RecursiveLoad, coherent
from zkms.errors import Closed, InvalidArgument, InvalidTopic, Timeout

from .conftest import Database, MakeCache


@pytest.fixture
def cache(node: MakeCache) -> Cache:
    """The cache of this node."""
    return node()


def test_a_write_on_one_node_is_seen_on_all(node: MakeCache, database: Database) -> None:
    """invalidate(wait=...) is true when the others have dropped it, and names them."""
    nodes = [node() for _ in range(3)]
    database.rows[42] = "old"
    assert [each.get(42, database.load) for each in nodes] == ["old"] * 3
    assert [each.get(42, database.load) for each in nodes] == ["old"] * 3
    assert len(database.reads) == 3
    database.rows[42] = "new"
    outcome = nodes[0].invalidate(42, wait=10.0)
    assert outcome
    assert outcome.sent
    assert sorted(outcome.dropped) == sorted(each._bus.client_id for each in nodes[1:])
    assert outcome.missing == {}
    assert [each.get(42) for each in nodes] == [None] * 3
    assert [each.get(42, database.load) for each in nodes] == ["new"] * 3


def test_the_own_value_is_dropped_before_invalidate_returns(cache: Cache) -> None:
    """Without waiting for anybody."""
    cache.set(1, "one")
    assert cache.invalidate(1) is None
    assert 1 not in cache


def test_several_keys_tags_and_everything_can_be_invalidated(node: MakeCache) -> None:
    """On every node; what is not named stays."""
    here, there = node(), node()
    for each in (here, there):
        for number in range(6):
            each.set(number, number, tags=["even", "number"] if number % 2 == 0 else "number")
        each.set("x", "x")
    assert here.invalidate_many([0, 1], wait=10.0)
    assert sorted(there.keys(), key=str) == [2, 3, 4, 5, "x"]
    assert here.invalidate_tag("even", wait=10.0)
    assert sorted(there.keys(), key=str) == [3, 5, "x"]
    assert sorted(here.keys(), key=str) == [3, 5, "x"]
    here.clear(everywhere=False)
    assert (len(here), len(there)) == (0, 3)
    assert here.clear(wait=10.0)
    assert len(there) == 0
    assert there.stats.flushes == {"told": 1}
    assert here.stats.flushes == {"cleared": 2}


def test_an_outcome_says_who_has_not_dropped_it(node: MakeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is stuck is named when the time is up, and the call takes no longer than that."""
    here, stuck = node(), node()
    go = threading.Event()
    monkeypatch.setattr(stuck.core.store, "drop", lambda *_args: go.wait(60))
    for _ in range(20):
        began = time.monotonic()
        outcome = here.invalidate(1, wait=0.5)
        assert time.monotonic() - began < 10
        if outcome.sent:
            break
    go.set()
    assert not outcome
    assert outcome.sent
    assert list(outcome.missing) == [stuck._bus.client_id]
    assert here.invalidate(1, wait=10.0)


def test_a_closed_node_is_not_waited_for(node: MakeCache) -> None:
    """It serves nothing any more."""
    here, there = node(), node()
    there.close()
    outcome = here.invalidate(1, wait=10.0)
    assert outcome
    assert outcome.dropped == ()


def test_one_thread_loads_and_the_others_wait_for_it(cache: Cache) -> None:
    """However many ask at once, the loader runs once."""
    go, loads, values = threading.Event(), [], []

    def load(key: Any) -> str:
        loads.append(key)
        assert go.wait(30)
        return "one"

    threads = [threading.Thread(target=lambda: values.append(cache.get(1, load))) for _ in range(8)]
    for thread in threads:
        thread.start()
    while not loads:
        time.sleep(0.001)
    go.set()
    for thread in threads:
        thread.join(30)
    assert values == ["one"] * 8
    assert loads == [1]


def test_a_loader_that_never_returns_holds_others_only_for_their_timeout(cache: Cache) -> None:
    """They hear `Timeout`, other keys are not held up, and the next call loads by itself once it has waited enough."""
    go, begun = threading.Event(), threading.Event()

    def hang(_key: Any) -> str:
        begun.set()
        go.wait(60)
        return "late"

    thread = threading.Thread(target=cache.get, args=(1, hang))
    thread.start()
    assert begun.wait(30)
    try:
        with pytest.raises(Timeout, match="another thread has been loading 1"):
            cache.get(1, lambda _key: "mine", timeout=0.2)
        assert cache.get(2, lambda _key: "two", timeout=0.2) == "two"
        cache.settings = cache.settings.__class__(load_timeout=0.001)
        assert cache.get(1, lambda _key: "mine", timeout=0.2) == "mine"
    finally:
        go.set()
        thread.join(30)


def test_what_a_loader_raises_is_passed_on_and_not_kept(cache: Cache) -> None:
    """The next call tries again."""

    def fail(_key: Any) -> None:
        raise LookupError("no such user")

    for _ in range(2):
        with pytest.raises(LookupError, match="no such user"):
            cache.get(1, fail)
    assert 1 not in cache
    assert cache.get(1, lambda _key: "one") == "one"


def test_a_loader_that_raises_a_timeout_of_its_own_is_not_mistaken(cache: Cache) -> None:
    """Those who wait for it hear what it raised."""
    begun, go = threading.Event(), threading.Event()
    heard: list[BaseException] = []

    def fail(_key: Any) -> None:
        begun.set()
        assert go.wait(30)
        raise TimeoutError("the database is slow")

    def call() -> None:
        try:
            cache.get(1, fail)
        except TimeoutError as error:
            heard.append(error)

    threads = [threading.Thread(target=call) for _ in range(2)]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    go.set()
    for thread in threads:
        thread.join(30)
    assert [str(error) for error in heard] == ["the database is slow"] * 2


def test_a_loader_that_is_interrupted_leaves_its_work_to_the_next(cache: Cache) -> None:
    """KeyboardInterrupt and the like are for the thread they came to."""
    begun, go = threading.Event(), threading.Event()
    values: list[Any] = []

    def interrupted(_key: Any) -> None:
        begun.set()
        assert go.wait(30)
        raise SystemExit

    def leave() -> None:
        with pytest.raises(SystemExit):
            cache.get(1, interrupted)

    first = threading.Thread(target=leave)
    first.start()
    assert begun.wait(30)
    second = threading.Thread(target=lambda: values.append(cache.get(1, lambda _key: "one")))
    second.start()
    go.set()
    first.join(30)
    second.join(30)
    assert values == ["one"]


def test_a_loader_that_asks_for_its_own_key_is_told_so(cache: Cache) -> None:
    """Rather than waiting for itself."""
    with pytest.raises(RecursiveLoad, match="asks for 1 itself"):
        cache.get(1, lambda key: cache.get(key, lambda _key: "never"))
    assert cache.get(1, lambda _key: cache.get(2, lambda _key: "two")) == "two"


def test_it_reads_like_a_mapping(cache: Cache) -> None:
    """cache[key], in, len; a key that is not there is a KeyError."""
    with pytest.raises(KeyError):
        cache[1]
    cache[1] = "one"
    assert cache[1] == "one"
    assert 1 in cache
    assert len(cache) == 1
    assert cache.get(2) is None
    assert cache.get(2, default="two") == "two"
    assert "1 values, trusted" in repr(cache)


def test_a_cache_may_have_a_loader_of_its_own(node: MakeCache, database: Database) -> None:
    """Then cache[key] loads."""
    cache = node(loader=database.load)
    database.rows[1] = "one"
    assert cache[1] == "one"
    assert cache[1] == "one"
    assert database.reads == [1]


def test_a_set_after_a_miss_is_refused_if_the_key_was_invalidated_meanwhile(node: MakeCache) -> None:
    """The way frameworks load: get, load, set. The value was read before the change."""
    here, there = node(), node()
    for miss in (lambda: here.get(1), lambda: 1 in here):
        miss()
        value = "old"
        assert there.invalidate(1, wait=10.0)
        assert here.set(1, value) is False
        assert 1 not in here
        assert here.set(1, "new") is True
        assert there.invalidate(1, wait=10.0)
    assert here.stats.discarded == 2


def test_put_keeps_here_and_drops_elsewhere(node: MakeCache, eventually: Eventually) -> None:
    """For programs whose cache is the only place of a value."""
    here, there = node(), node()
    here.put(1, "a")
    there.set(1, "b")
    assert here.put(1, "c", wait=10.0)
    assert (here.get(1), there.get(1)) == ("c", None)


def test_nodes_that_put_at_the_same_time_never_disagree_for_good(node: MakeCache, eventually: Eventually) -> None:
    """Of two that put, at least one drops its own: what is left is one value or none."""
    here, there = node(), node()
    for number in range(30):
        threads = [threading.Thread(target=each.put, args=(1, f"{name}{number}"), kwargs={"wait": 10.0})
                   for name, each in (("a", here), ("b", there))]  # fmt: skip
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        values = {value for each in (here, there) if (value := each.get(1)) is not None}
        assert len(values) <= 1, values


def test_a_burst_of_one_key_is_one_message_and_a_storm_is_one_flush(node: MakeCache, eventually: Eventually) -> None:
    """Whatever is asked for while a message is under way goes with the next one."""
    here, there = node(), node()
    there.set("other", 1)
    for _ in range(1000):
        here.invalidate("k")
    assert here.invalidate("k", wait=20.0)
    stats = here.stats
    assert stats.invalidations == 1001
    assert stats.sent < 500, "most of them shared a message"
    assert stats.sent + stats.coalesced == 1001
    assert "other" in there
    assert here.invalidate_many(range(50_000), wait=20.0)
    assert here.stats.sent == stats.sent + 1
    assert there.stats.flushes == {"told": 1}
    assert "other" not in there


def test_invalidations_of_one_writer_apply_in_order(node: MakeCache) -> None:
    """When the last one has been applied, so have those before it that nobody waited for."""
    here, there = node(), node()
    for turn in range(20):
        for number in range(50):
            there.set(number, turn)
        for number in range(49):
            here.invalidate(number)
        assert here.invalidate(49, wait=20.0)
        assert there.keys() == []


def test_events_and_counters_tell_why(node: MakeCache) -> None:
    """on_event hears of each flush with its reason; a callback that raises harms nothing."""
    events: list[CacheEvent] = []

    def note(event: CacheEvent) -> None:
        events.append(event)
        raise RuntimeError("not my day")

    cache = node(on_event=note)
    cache.set(1, 1)
    cache.get(1)
    cache.get(2)
    cache.clear()
    assert [(event.kind, event.reason) for event in events] == [("trusted", "proved"), ("flushed", "cleared")]
    stats = cache.stats
    assert (stats.hits, stats.misses, stats.size, stats.trusted) == (1, 1, 0, True)


@pytest.mark.parametrize("key", [[1], {}, object(), (1, {2})])
def test_a_key_that_cannot_travel_is_refused_by_every_call(cache: Cache, key: Any) -> None:
    """Before anything is loaded or stored."""
    calls: list[Callable[[], Any]] = [
        lambda: cache.get(key),
        lambda: cache.get(key, lambda _key: pytest.fail("loaded")),
        lambda: cache[key],
        lambda: key in cache,
        lambda: cache.set(key, 1),
        lambda: cache.put(key, 1),
        lambda: cache.invalidate(key),
        lambda: cache.invalidate_many([1, key]),
    ]
    for call in calls:
        with pytest.raises(InvalidKey):
            call()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"maxsize": 0}, "maxsize"),
        ({"maxsize": True}, "maxsize"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": "1"}, "ttl"),
        ({"max_staleness": -1}, "max_staleness"),
        ({"max_staleness": 7.0}, "session time-out of 10 s"),
        ({"load_timeout": None}, "load_timeout"),
        ({"negative": 1}, "negative"),
        ({"on_event": 1}, "on_event"),
        ({"loader": 1}, "loader"),
    ],
)
def test_settings_that_cannot_work_are_refused(bus: zkms.Bus, settings: dict[str, Any], words: str) -> None:
    """Before anything is subscribed to."""
    with pytest.raises(InvalidArgument, match=words):
        zkms.Cache(bus, "users", **settings)
    assert bus.topics() == []


@pytest.mark.parametrize("name", ["", "a/b", None, 1])
def test_a_name_is_part_of_a_topic(bus: zkms.Bus, name: Any) -> None:
    """So it has to be one."""
    with pytest.raises(InvalidTopic):
        zkms.Cache(bus, name)


def test_arguments_are_checked(cache: Cache) -> None:
    """With words that say what was meant."""
    with pytest.raises(InvalidArgument, match="default="):
        cache.get(1, "not a loader")
    with pytest.raises(InvalidArgument, match="wait"):
        cache.invalidate(1, wait="2")
    with pytest.raises(InvalidArgument, match="tag"):
        cache.invalidate_tag(1)
    with pytest.raises(InvalidArgument, match="timeout"):
        cache.get(1, lambda key: key, timeout="x")


def test_a_bus_has_one_cache_of_a_name(bus: zkms.Bus) -> None:
    """A second one is refused with the differences, or shared if its settings agree; a closed one makes room."""
    first = zkms.Cache(bus, "users", maxsize=10)
    with pytest.raises(InvalidArgument, match=r"already, with maxsize=10, not 20; ttl=None, not 5.0"):
        zkms.Cache(bus, "users", maxsize=20, ttl=5)
    assert zkms.Cache.shared(bus, "users", maxsize=10) is first
    with pytest.raises(InvalidArgument, match="maxsize=10, not 10000"):
        zkms.Cache.shared(bus, "users")
    assert zkms.Cache.shared(bus, "groups") is not first
    first.close()
    first.close()
    again = zkms.Cache(bus, "users", maxsize=20)
    assert again.set(1, 1)


def test_after_the_bus_is_closed_every_call_says_so(node: MakeCache, database: Database) -> None:
    """And nothing that was kept is served."""
    cache = node()
    load = cache.cached()(lambda number: number)
    cache.set(1, "one")
    load(1)
    cache._bus.close()
    assert cache.closed
    assert not cache.trusted
    calls: list[Callable[[], Any]] = [
        lambda: cache.get(1),
        lambda: cache.get(1, database.load),
        lambda: cache[1],
        lambda: 1 in cache,
        lambda: cache.set(1, 1),
        lambda: cache.put(1, 1),
        lambda: cache.invalidate(1),
        lambda: cache.invalidate(1, wait=1.0),
        lambda: cache.invalidate_tag("t"),
        lambda: cache.clear(),
        lambda: cache.cached(),
        lambda: load(1),
        lambda: load.cache_clear(),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()
    assert database.reads == []
    assert "closed" in repr(cache)
    cache.close()


def test_what_was_invalidated_is_sent_before_the_bus_closes(node: MakeCache, eventually: Eventually) -> None:
    """close() finishes what is in hand."""
    here, there = node(), node()
    for number in range(100):
        there.set(number, number)
        here.invalidate(number)
    here._bus.close()
    eventually(lambda: there.keys() == [])


def test_a_cache_may_be_closed_while_its_bus_is(node: MakeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes second finds nothing left to do, and is not bothered with it."""
    cache = node()
    unsubscribe = cache.core.node._subscription.unsubscribe

    def late(timeout: float) -> None:
        cache._bus.close()
        unsubscribe(timeout)
        raise Closed("the bus is closed")  # as the session says, when its end comes just then

    monkeypatch.setattr(cache.core.node._subscription, "unsubscribe", late)
    cache.close()
    cache.close()
    assert cache.closed


def test_a_coherent_mapping_follows_the_others(connect: Callable[..., zkms.Bus]) -> None:
    """Any MutableMapping, used through what coherent() returns; deleting an item drops it on every node."""
    mine, plain = cachetools.TTLCache(100, 60), {"old": 1}
    here, there = coherent(mine, connect(), "users"), coherent(plain, connect(), "users")
    assert "old" not in there, "nobody could have told it of changes"
    here[1] = there[1] = "one"
    assert mine[1] == plain[1] == "one"
    del here[1]
    assert here.invalidate("barrier", wait=10.0)
    assert (dict(here), dict(there), plain) == ({}, {}, {})
    with pytest.raises(KeyError):
        del there[1]
    there[2] = None
    assert there[2] is None
    assert here.invalidate(2, wait=10.0)
    assert 2 not in there
    assert here.invalidate(3, wait=10.0)
    there[3] = 3
    assert there.popitem() == (3, 3)
    here[4] = 4
    there.clear()
    assert there.invalidate("barrier", wait=10.0)
    assert len(here) == 0
    with pytest.raises(InvalidArgument, match="mutable mapping"):
        coherent(frozenset(), connect(), "users")


def test_a_coherent_mapping_works_with_cachetools_decorator(connect: Callable[..., zkms.Bus]) -> None:
    """Whose keys are a kind of tuple. A load that an invalidation overtook is not kept."""
    here, there = (coherent(cachetools.LRUCache(100), connect(), "users") for _ in range(2))
    loads: list[int] = []

    @cachetools.cached(here)
    def load(number: int) -> int:
        loads.append(number)
        if len(loads) == 1:
            assert there.invalidate(cachetools.keys.hashkey(1), wait=10.0)
        return number

    assert [load(1), load(1), load(1)] == [1, 1, 1]
    assert loads == [1, 1]
    assert list(here) == [(1,)]


def test_without_cachetools_the_cache_says_what_to_install(monkeypatch: pytest.MonkeyPatch, bus: zkms.Bus) -> None:
    """And the rest of zkms does without."""
    code = (
        "import sys; sys.modules['cachetools'] = None\n"
        "import zkms, zkms.cache\n"
        "from zkms.cache.store import new_mapping\n"
        "try: new_mapping(1, None)\n"
        "except zkms.ZkmsError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'zkms[cache]'" in run.stdout
    assert issubclass(MissingExtra, ImportError)


def test_a_cache_does_not_cross_a_fork(zookeeper: Any, zookeeper_root: str) -> None:
    """The child is told, also for a key that the parent had at hand; the parent goes on."""
    code = f"""
import os, sys, zkms
bus = zkms.connect({zookeeper.hosts!r}, {zookeeper_root!r}, cleaner=False)
cache = zkms.Cache(bus, "users")
cache.set(1, "one")
assert cache.get(1) == "one"
pid = os.fork()
if pid == 0:
    for call in (lambda: cache.get(1), lambda: cache.set(1, 2), lambda: cache.invalidate(1), cache.close):
        try:
            call()
            os._exit(1)
        except zkms.UsedAfterFork:
            pass
    os._exit(0)
_, status = os.waitpid(pid, 0)
assert cache.get(1) == "one"
bus.close()
sys.exit(status != 0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr


def test_a_child_is_not_held_up_by_locks_of_threads_it_does_not_have(zookeeper: Any, zookeeper_root: str) -> None:
    """It may look at the parent's counters, is told when it calls, and may make a cache of its own."""
    code = f"""
import faulthandler, os, sys, zkms
import zkms.cache.cache as caches
bus = zkms.connect({zookeeper.hosts!r}, {zookeeper_root!r}, cleaner=False)
cache = zkms.Cache(bus, "users")
double = cache.cached(name="double")(lambda number: 2 * number)
locks = cache.core.store.lock, caches._entering, caches._sharing
for lock in locks:
    lock.acquire()  # as if threads were just there
pid = os.fork()
if pid == 0:
    faulthandler.dump_traceback_later(40, exit=True)
    assert cache.stats.size == len(cache) == 0
    try:
        double(1)
        os._exit(1)
    except zkms.UsedAfterFork:
        pass
    with zkms.connect({zookeeper.hosts!r}, {zookeeper_root!r}, cleaner=False) as own:
        zkms.Cache.shared(own, "users")
    os._exit(0)
for lock in locks:
    lock.release()
_, status = os.waitpid(pid, 0)
bus.close()
sys.exit(status != 0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
