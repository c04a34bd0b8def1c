"""What the cache promises when things go wrong; each promise is also broken on purpose, to see it missed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkms
from tests.support.buses import Eventually
from zkms.cache import Cache, CacheEvent
from zkms.cache.node import CacheNode
from zkms.cache.pulse import BEATS
from zkms.cache.store import clock
from zkms.cache.tickets import Tickets
from zkms.testing import Proxy, expire
from zkms.tree.paths import Tree

from .conftest import Database, MakeCache

SHORT = {"session_timeout": 3.0}


def load_while_another_node_writes(node: MakeCache) -> Cache:
    """A loader reads the row, another node changes it and tells everybody, then the loader returns what it read."""
    here, there = node(), node()
    database = {1: "old"}

    def load(key: int) -> str:
        value = database[key]
        database[key] = "new"
        assert there.invalidate(key, wait=10.0)
        return value

    assert here.get(1, load) == "old", "this read began before the change"
    assert here.get(1, database.get) in ("old", "new")
    return here


def test_a_value_that_was_being_loaded_when_it_changed_is_not_kept(node: MakeCache) -> None:
    """The race that is lost by subscribers written by hand."""
    cache = load_while_another_node_writes(node)
    assert cache.get(1) == "new"
    assert cache.stats.discarded == 1


def test_without_tickets_the_old_value_would_stay(node: MakeCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking it on purpose."""
    monkeypatch.setattr(Tickets, "valid", lambda *_args: True)
    assert load_while_another_node_writes(node).get(1) == "old"


def test_a_reader_that_comes_after_an_invalidation_does_not_join_an_older_load(node: MakeCache) -> None:
    """It would get a value from before the write that it knows of."""
    here, there = node(), node()
    begun, go = threading.Event(), threading.Event()
    got: list[Any] = []

    def slow(_key: Any) -> str:
        begun.set()
        assert go.wait(30)
        return "old"

    thread = threading.Thread(target=lambda: got.append(here.get(1, slow)))
    thread.start()
    assert begun.wait(30)
    assert there.invalidate(1, wait=10.0)
    assert here.get(1, lambda _key: "new") == "new"
    go.set()
    thread.join(30)
    assert got == ["old"]
    assert here.get(1) == "new"


def test_a_node_that_is_cut_off_serves_for_max_staleness_and_then_asks(
    node: MakeCache, proxy: Proxy, database: Database, eventually: Eventually
) -> None:
    """Counted from before it was cut off; later reads go past the cache, and nothing is kept until trust is back."""
    events: list[CacheEvent] = []
    cut = node(bus={"hosts": proxy.hosts, "session_timeout": 15.0}, max_staleness=1.0, on_event=events.append)
    database.rows.update({1: "one", 2: "two"})
    cut.get(1, database.load)
    proxy.black_hole()
    latest = clock() + 1.0
    while True:
        began, reads = clock(), len(database.reads)
        assert cut.get(1, database.load) == "one"
        if len(database.reads) > reads:
            break
        assert began < latest, "served for too long"
    assert not cut.trusted
    assert cut.get(2, database.load) == "two"
    assert cut.set(2, "two") is False
    assert cut.stats.bypasses >= 2
    proxy.heal()
    eventually(lambda: cut.trusted)
    assert 2 not in cut
    assert cut.get(1) == "one", "the session lived on, so what was kept is still good"
    assert cut.stats.flushes == {}
    assert [event.kind for event in events] == ["trusted", "untrusted", "trusted"]


def cut_off_for_longer_than_its_session(node: MakeCache, proxy: Proxy, eventually: Eventually) -> tuple[Cache, Any]:
    """A node misses a change; returns it when it is trusted again, and what it served right after the writer was told
    that everybody has dropped the old value.
    """
    cut = node(bus={"hosts": proxy.hosts, **SHORT}, max_staleness=1.0)
    there = node()
    cut.set(1, "old")
    proxy.black_hole()
    eventually(lambda: len(there._bus.subscriptions("zkms.cache.users")) == 1, what="the end of its session")
    assert there.invalidate(1, wait=10.0), "the dead are not waited for"
    served = cut.get(1)
    proxy.heal()
    eventually(lambda: cut.trusted and cut._bus.parts.session.generation > 1, what="trust")
    return cut, served


def test_a_node_cut_off_for_longer_than_its_session_serves_nothing_old(
    node: MakeCache, proxy: Proxy, eventually: Eventually
) -> None:
    """Not while it is away, nor when it is back: it flushes first, and says why."""
    cut, served = cut_off_for_longer_than_its_session(node, proxy, eventually)
    assert served is None
    assert cut.get(1) is None
    assert cut.stats.flushes["expired"] == 1


def test_without_the_flush_at_a_gap_an_old_value_would_be_served(
    node: MakeCache, proxy: Proxy, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking it on purpose."""
    monkeypatch.setattr(CacheNode, "flush", lambda *_args: None)
    monkeypatch.setattr("zkms.cache.store.CacheStore.flush", lambda *_args: None)
    cut, _ = cut_off_for_longer_than_its_session(node, proxy, eventually)
    assert cut.get(1) == "old"


def test_without_trust_a_node_that_is_cut_off_would_serve_an_old_value(
    node: MakeCache, proxy: Proxy, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking it on purpose: a cache that believes for ever what was proved once."""
    prove = zkms.cache.pulse.Pulse._prove

    def for_ever(self: Any, sent: float, generation: int) -> None:
        prove(self, sent + 1e6, generation)

    monkeypatch.setattr("zkms.cache.pulse.Pulse._prove", for_ever)
    _, served = cut_off_for_longer_than_its_session(node, proxy, eventually)
    assert served == "old"


def test_an_expired_session_flushes_before_anything_is_served(node: MakeCache, eventually: Eventually) -> None:
    """The node hears of it when ZooKeeper tells it; nothing from before is there any more."""
    events: list[CacheEvent] = []
    cache = node(on_event=events.append)
    cache.set(1, "one")
    expire(cache._bus)
    eventually(lambda: cache.stats.flushes.get("expired"))
    eventually(lambda: cache.trusted)
    assert cache.get(1) is None
    assert ("flushed", "expired") in [(event.kind, event.reason) for event in events]


@pytest.mark.parametrize("what", ["registration", "queue"])
def test_a_registration_removed_by_hand_is_noticed_and_made_again(
    node: MakeCache, raw: KazooClient, zookeeper_root: str, eventually: Eventually, what: str
) -> None:
    """The node flushes, is a member again by itself, and hears of invalidations again."""
    here, there = node(), node(max_staleness=1.0)
    there.set(1, "one")
    tree, topic, own = Tree(zookeeper_root), "zkms.cache.users", there.core.node._subscription.id
    if what == "registration":
        raw.delete(tree.registration(topic, own))
    else:
        raw.delete(tree.queue(own, topic), recursive=True)
    eventually(lambda: there.stats.flushes, what="the flush")
    eventually(lambda: there.trusted and len(here._bus.subscriptions(topic)) == 2, what="its registration")
    assert 1 not in there
    assert there.set(2, "two")
    assert here.invalidate(2, wait=10.0).dropped == (there._bus.client_id,)
    assert 2 not in there


def test_entries_that_vanish_unread_are_a_flush_and_trust_goes_on(
    node: MakeCache, raw: KazooClient, zookeeper_root: str, eventually: Eventually
) -> None:
    """Another program creates and deletes something in the queue: we cannot know what it was."""
    cache = node(max_staleness=1.0)
    cache.set(1, "one")
    queue = Tree(zookeeper_root).queue(cache.core.node._subscription.id, cache.core.node.topic)
    change = raw.transaction()
    change.create(f"{queue}/x")
    change.delete(f"{queue}/x")
    assert change.commit()
    eventually(lambda: cache.stats.flushes)
    eventually(lambda: cache.core.node._pulse._caught_up == (queue, 1), what="a proof that counts it as dealt with")
    eventually(lambda: cache.trusted)
    assert 1 not in cache


def test_an_invalidation_that_cannot_be_read_flushes(node: MakeCache, bus: zkms.Bus, eventually: Eventually) -> None:
    """A newer version, or a stranger, on our topic: what it would have dropped is not known."""
    cache = node()
    cache.set(1, "one")
    bus.publish("zkms.cache.users", {"something": "else"})
    eventually(lambda: cache.stats.flushes == {"unreadable": 1})
    assert 1 not in cache


def test_a_writer_that_is_cut_off_is_told_in_time_and_its_invalidation_is_tried_on(
    node: MakeCache, proxy: Proxy, eventually: Eventually
) -> None:
    """wait= is kept also if ZooKeeper never answers; when it does again, the others drop the old value."""
    writer = node(bus={"hosts": proxy.hosts})
    reader = node()
    reader.set(1, "old")
    assert writer.invalidate("warm", wait=10.0)
    proxy.black_hole()
    began = time.monotonic()
    outcome = writer.invalidate(1, wait=0.5)
    assert time.monotonic() - began < 5
    assert not outcome
    assert not outcome.sent or outcome.missing
    proxy.heal()
    eventually(lambda: 1 not in reader.keys(), timeout=60)  # noqa: SIM118 - a list, not a mapping
    assert writer.invalidate(2, wait=30.0)


def test_a_node_that_dies_is_waited_for_no_longer_than_it_could_serve(
    node: MakeCache, proxy: Proxy, eventually: Eventually
) -> None:
    """Its session ends, `max_staleness` passes, and it counts as one that has dropped the value."""
    dying = node(bus={"hosts": proxy.hosts, **SHORT}, max_staleness=1.0)
    writer = node(max_staleness=1.0)
    dying.set(1, "old")
    proxy.black_hole()
    outcome = writer.invalidate(1, wait=60.0)
    assert outcome
    assert outcome.dropped == (dying._bus.client_id,)
    assert dying.get(1) is None


def test_a_proof_is_one_transaction_and_one_read(node: MakeCache, proxy: Proxy) -> None:
    """An idle cache lists nothing, and asks as often as it says."""
    node(bus={"hosts": proxy.hosts}, max_staleness=1.0)
    before, began = proxy.requests, time.monotonic()
    time.sleep(2.0)
    asked, elapsed = proxy.requests - before, time.monotonic() - began
    asked.pop("ping", None)
    assert set(asked) == {"multi", "exists"}
    assert max(asked.values()) <= elapsed * BEATS + 2


def test_a_backlog_of_invalidations_is_no_trust(
    node: MakeCache, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that hears and does not get to applying what it hears stops serving, too."""
    here, there = node(), node(max_staleness=1.0)
    there.set(1, "one")
    go = threading.Event()
    drop = there.core.store.drop
    monkeypatch.setattr(there.core.store, "drop", lambda *args: (go.wait(60), drop(*args)))
    here.invalidate(2)
    eventually(lambda: not there.trusted, timeout=20)
    assert there.get(1) is None
    go.set()
    eventually(lambda: there.trusted)
    assert there.get(1) == "one"
    assert there.stats.flushes == {}


def test_more_invalidations_than_a_node_can_take_are_one_flush(
    node: MakeCache, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue collapses into a gap. A writer is told who cannot be reached; later all is well again."""
    monkeypatch.setattr("zkms.cache.node.LIMIT", 5)
    here, there = node(), node(max_staleness=1.0)
    there.set("kept", 1)
    go = threading.Event()
    drop = there.core.store.drop
    monkeypatch.setattr(there.core.store, "drop", lambda *args: (go.wait(60), drop(*args)))
    reasons: set[str] = set()
    for number in range(200):
        reasons |= {*here.invalidate(number, wait=0.05).missing.values()}
        if any("full" in reason for reason in reasons):
            break
    assert any("full" in reason for reason in reasons), reasons
    go.set()
    eventually(lambda: there.stats.flushes.get("gap"))
    assert "kept" not in there
    eventually(lambda: there.trusted)
    assert there.set("new", 1)
    eventually(lambda: here.invalidate("new", wait=5.0).dropped == (there._bus.client_id,))
    assert "new" not in there


def test_a_hit_costs_little_more_than_cachetools_with_a_lock(node: MakeCache) -> None:
    """In the same run; the bound is generous, since machines are noisy."""
    import cachetools

    cache, lru, lock = node(), cachetools.LRUCache(10_000), threading.Lock()
    for number in range(1000):
        lru[number] = number
        cache.set(number, number)

    def theirs() -> None:
        for number in range(1000):
            with lock:
                lru[number]

    def ours() -> None:
        for number in range(1000):
            cache.get(number)

    def timed(work: Callable[[], None]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    times = [(timed(theirs), timed(ours)) for _ in range(200)]
    ratio = min(mine for _, mine in times) / min(other for other, _ in times)
    assert ratio < 2.5, ratio


def test_writers_that_share_a_message_each_wait_for_their_own_time(
    node: MakeCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits long for a node that is stuck does not hold up another that has asked for less."""
    here, stuck = node(), node()
    go = threading.Event()
    monkeypatch.setattr(stuck.core.store, "drop", lambda *_args: go.wait(60))
    receipt = here.send([1]).result(30)
    patient = threading.Thread(target=here.await_receipt, args=(receipt, time.monotonic() + 60.0))
    patient.start()
    began = time.monotonic()
    outcome = here.await_receipt(receipt, began + 0.3)
    assert time.monotonic() - began < 20
    assert list(outcome.missing) == [stuck._bus.client_id]
    go.set()
    patient.join(30)
    assert not patient.is_alive()


def test_wait_is_kept_if_zookeeper_falls_silent_after_the_sending(node: MakeCache, proxy: Proxy) -> None:
    """Whoever waits is told in the time that was asked for, and not when ZooKeeper could have answered."""
    writer, reader = node(bus={"hosts": proxy.hosts}), node()
    receipt = writer.send([1]).result(30)
    proxy.black_hole()
    excess = []
    for _ in range(5):  # a busy machine may add to one of them
        began = time.monotonic()
        outcome = writer.await_receipt(receipt, began + 0.2)
        excess.append(time.monotonic() - began - 0.2)
        assert outcome or list(outcome.missing) == [reader._bus.client_id]
        if outcome:
            return  # it was acknowledged, and that was known, before the silence
    assert min(excess) < 0.5, excess
