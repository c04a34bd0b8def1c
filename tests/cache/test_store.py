"""The store by itself: what is served, what may be kept, and what an invalidation does to loads under way."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import cachetools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zkms.cache import store as stores
from zkms.cache.recent import Recent
from zkms.cache.store import MISSING, NEVER, UNTRUSTED, CacheStore, new_mapping
from zkms.cache.tickets import KEPT, Leases, Tickets


@pytest.fixture
def store() -> CacheStore:
    """One that is trusted for good."""
    made = CacheStore(new_mapping(100, None))
    made.until = float("inf")
    return made


def begin(store: CacheStore, key: Any, tags: tuple[str, ...] = ()) -> Any:
    """Begin a load, which nobody else has begun."""
    flight, mine = store.begin(key, tags, "me", 30.0)
    assert mine
    return flight


def test_a_value_is_served_only_while_the_store_is_trusted(store: CacheStore) -> None:
    """The same value before and after, and nothing in between."""
    assert store.set(1, "one", (), None)
    assert store.find(1) == "one"
    store.until = NEVER
    assert store.find(1) is UNTRUSTED
    assert not store.holds(1)
    assert store.keys() == []
    assert not store.set(2, "two", (), None)
    store.until = float("inf")
    assert store.find(1) == "one"
    assert store.find(2) is MISSING
    stats = store.snapshot()
    assert (stats.hits, stats.misses, stats.bypasses) == (2, 1, 1)


@pytest.mark.parametrize("how", ["key", "tag", "flush"])
def test_an_invalidation_detaches_a_load_under_way(store: CacheStore, how: str) -> None:
    """Its value goes to those who wait, is not kept, and nobody joins it any more."""
    flight = begin(store, 1, ("t",))
    joined, mine = store.begin(1, (), "other", 30.0)
    assert joined is flight
    assert not mine
    if how == "key":
        store.drop([1])
    elif how == "tag":
        store.drop([], ["t"])
    else:
        store.flush("test")
    later = begin(store, 1)
    assert not store.finish(flight, "old")
    assert joined.future.result(0) == "old"
    assert store.find(1) is MISSING
    assert store.begin(1, (), "other", 30.0) == (later, False)
    assert store.finish(later, "new")
    assert store.find(1) == "new"
    assert store.snapshot().discarded == 1


def test_other_keys_are_not_detached(store: CacheStore) -> None:
    """An invalidation costs only what it names."""
    flight = begin(store, 1, ("t",))
    store.drop([2], ["u"])
    assert store.finish(flight, "one")
    assert store.find(1) == "one"


def test_a_load_that_takes_too_long_is_not_joined(store: CacheStore) -> None:
    """Whoever comes after it begins anew; when it ends after all, it takes nothing away."""
    stuck, _ = store.begin(1, (), "me", 0.0)
    fresh, mine = store.begin(1, (), "other", 0.0)
    assert mine
    assert fresh is not stuck
    store.finish(stuck, "late")
    assert store.begin(1, (), "other", 30.0) == (fresh, False)


def test_a_failed_load_keeps_nothing(store: CacheStore) -> None:
    """Whoever waits hears of the error."""
    flight = begin(store, 1)
    store.fail(flight, RuntimeError("no"))
    with pytest.raises(RuntimeError):
        flight.future.result(0)
    assert store.find(1) is MISSING
    begin(store, 1)


def test_a_value_that_the_mapping_refuses_is_given_to_the_caller_all_the_same() -> None:
    """Too large for a cachetools cache that measures its values."""
    store = CacheStore(cachetools.LRUCache(10, getsizeof=len))
    store.until = float("inf")
    flight = begin(store, 1)
    assert not store.finish(flight, "x" * 100)
    assert flight.future.result(0) == "x" * 100


@pytest.mark.parametrize("negative", [False, True])
def test_none_is_kept_only_if_asked_for(negative: bool) -> None:
    """Negative caching is a switch."""
    store = CacheStore(new_mapping(10, None), negative=negative)
    store.until = float("inf")
    store.finish(begin(store, 1), None)
    assert store.find(1) is (None if negative else MISSING)


def test_tags_drop_what_has_them(store: CacheStore) -> None:
    """And nothing else, also when a key was kept again with other tags."""
    store.set(1, "a", ("x", "y"), None)
    store.set(2, "b", ("x",), None)
    store.set(3, "c", (), None)
    store.set(2, "b", ("z",), None)
    assert (store.tagged("x"), store.tagged("y"), store.tagged("z")) == (1, 1, 1)
    store.drop([], ["x"])
    assert store.keys() == [3, 2] or sorted(store.keys()) == [2, 3]
    assert (store.tagged("x"), store.tagged("y")) == (0, 0)


def test_tags_of_what_was_evicted_are_forgotten() -> None:
    """The index is bounded as the values are."""
    store = CacheStore(new_mapping(10, None))
    store.until = float("inf")
    for number in range(10_000):
        store.set(number, number, ("t", str(number)), None)
    assert len(store._tags) <= 2048
    assert store.tagged("t") == 10
    assert len(store._tagged) == 11


def test_the_least_recently_used_goes_first(store: CacheStore) -> None:
    """Reading counts as use."""
    small = CacheStore(new_mapping(3, None))
    small.until = float("inf")
    for key in "abc":
        small.set(key, key, (), None)
    assert small.find("a") == "a"
    small.set("d", "d", (), None)
    assert sorted(small.keys()) == ["a", "c", "d"]


def test_what_is_older_than_its_ttl_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By cachetools' clock, which is ours."""
    now = [100.0]
    monkeypatch.setattr(stores, "clock", lambda: now[0])
    store = CacheStore(new_mapping(10, 5.0))
    store.until = float("inf")
    store.set(1, "one", (), None)
    assert store.find(1) == "one"
    now[0] += 5.1
    assert store.find(1) is MISSING


@settings(max_examples=500)
@given(st.lists(st.tuples(st.sampled_from("gsd"), st.integers(0, 7)), max_size=60))
def test_recent_is_an_lru_cache(steps: list[tuple[str, int]]) -> None:
    """Whatever is read, set and deleted: the same content as cachetools' own."""
    ours, theirs = Recent(4), cachetools.LRUCache(4)
    for step, key in steps:
        if step == "s":
            ours[key] = theirs[key] = step
        elif step == "d":
            ours.pop(key, None)
            theirs.pop(key, None)
        elif key in ours.at_hand:
            ours.touched(key)
            theirs[key]
        assert set(ours) == set(theirs) == set(ours.at_hand)


def test_a_ticket_is_good_until_its_key_is_invalidated() -> None:
    """Not by another key's, and again from then on."""
    tickets = Tickets()
    before = tickets.now
    tickets.void([1])
    assert not tickets.valid(before, 1)
    assert tickets.valid(before, 2)
    assert tickets.valid(tickets.now, 1)
    tickets.void([], ["t"])
    assert tickets.valid(before, 2)
    assert not tickets.valid(before, 2, ["t"])
    tickets.void_all()
    assert not tickets.valid(before, 2)


@given(st.lists(st.integers(0, 9), max_size=50), st.integers(0, 9), st.integers(0, 50))
def test_tickets_that_forget_never_accept_what_they_should_not(voided: list[int], key: int, start: int) -> None:
    """Remembering only three keys, every ticket whose key was invalidated later is refused."""
    tickets = Tickets(remembered=3)
    for number, each in enumerate(voided):
        if number == start:
            break
        tickets.void([each])
    ticket = tickets.now
    later = voided[start:]
    for each in later:
        tickets.void([each])
    if key in later:
        assert not tickets.valid(ticket, key)
    assert tickets.valid(tickets.now, key)


def test_a_lease_belongs_to_the_context_that_missed() -> None:
    """Threads and tasks do not share them; a task inherits what its parent had, and adds to its own."""
    leases = Leases("x")
    leases.note("mine", 1)
    seen: list[int | None] = []
    thread = threading.Thread(target=lambda: seen.append(leases.take("mine")))
    thread.start()
    thread.join()
    task = contextvars.copy_context()
    task.run(leases.note, "task's", 2)
    assert seen == [None]
    assert task.run(leases.take, "mine") == 1
    assert task.run(leases.take, "task's") == 2
    assert leases.take("task's") is None
    assert leases.take("mine") == 1
    assert leases.take("mine") is None


def test_leases_that_were_forgotten_are_still_safe() -> None:
    """A context that misses more than is kept: the oldest ticket that was forgotten stands in for any of them."""

    def check() -> None:
        leases = Leases("x")
        for number in range(KEPT + 10):
            leases.note(number, number)
        assert leases.take(KEPT + 9) == KEPT + 9
        assert leases.take(3) == 0
        assert leases.take("never missed") == 0

    contextvars.copy_context().run(check)


def test_of_several_misses_the_first_counts() -> None:
    """Until a set() uses it up: whoever looks again before storing has not loaded again."""

    def check() -> None:
        leases = Leases("x")
        leases.note("key", 1)
        leases.note("key", 5)
        assert leases.take("key") == 1
        leases.note("key", 6)
        assert leases.take("key") == 6

    contextvars.copy_context().run(check)


def test_a_mapping_is_counted_with_the_lock_held() -> None:
    """Those of cachetools that have a time to live change when they are counted, so two must not count at once."""

    class Watched(dict[Any, Any]):
        def __len__(self) -> int:
            assert store.lock.locked()
            return super().__len__()

    store = CacheStore(Watched())
    assert store.size() == 0
    assert store.snapshot().size == 0
