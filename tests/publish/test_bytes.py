"""Large messages: a queue is bounded in bytes too, so that one slow subscriber stops nobody."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient

from tests.support.buses import Connect, Eventually
from tests.support.listener import Listener
from zkms import Bus, StoreError
from zkms.publish.bodies import Bodies
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import MOST_BYTES

LARGE = b"x" * 20_000
QUEUE_BYTES = 300_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proportions of the real bounds, and less to send."""
    monkeypatch.setattr("zkms.publish.limits.MAX_TRANSACTION", 21_000)
    monkeypatch.setattr("zkms.publish.bodies.MAX_BYTES", 2 * QUEUE_BYTES)
    monkeypatch.setattr("zkms.publish.bodies.SWEEP_BYTES", 50_000)


def check_a_hanging_subscriber_stops_nobody(
    bus: Bus, connect: Connect, eventually: Eventually, max_bytes: int = QUEUE_BYTES
) -> None:
    """Fail if a publisher waits, or another subscriber misses something, because one does not read."""
    hung, quick = Listener(), Listener()
    hung.go.clear()
    hung.subscribe(connect(), "users", max_bytes=max_bytes)
    quick.subscribe(connect(), "users", max_bytes=max_bytes)
    try:
        for number in range(60):
            bus.publish("users", LARGE, headers={"n": str(number)}, timeout=3)
        eventually(lambda: len(quick.messages) == 60)
    finally:
        hung.go.set()
    assert [message.headers["n"] for message in quick.messages] == [str(number) for number in range(60)]
    assert quick.gaps == []
    eventually(lambda: hung.gaps)
    assert f"{QUEUE_BYTES:,} bytes" in hung.gaps[0].reason
    before = len(hung.messages)
    assert before * len(LARGE) <= QUEUE_BYTES
    bus.publish("users", "later")
    eventually(lambda: hung.data[-1] == "later")


def test_a_hanging_subscriber_stops_nobody(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Its queue collapses into a gap before the bodies that it keeps use up the publisher's budget."""
    check_a_hanging_subscriber_stops_nobody(bus, connect, eventually)


def test_without_the_bound_in_bytes_it_would(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Breaking it on purpose: the publisher runs into its own budget for bodies and waits."""
    with pytest.raises(StoreError):
        check_a_hanging_subscriber_stops_nobody(bus, connect, eventually, max_bytes=MOST_BYTES)


def test_copies_are_bounded_in_bytes_as_bodies_are(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """With one subscriber the messages are in its queue themselves."""
    listener = Listener()
    listener.go.clear()
    sub = listener.subscribe(connect(), "users", max_bytes=QUEUE_BYTES)
    for _ in range(30):
        bus.publish("users", LARGE)
    names = raw.get_children(tree.queue(sub.id, "users"))
    assert sum(parse_entry(name).size for name in names) <= QUEUE_BYTES
    listener.go.set()
    eventually(lambda: listener.gaps)


def test_a_sweep_that_fails_is_no_failure_of_a_publish(
    bus: Bus, connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in flight meanwhile is stored, and its callers hear nothing of it."""
    listener = Listener()
    listener.subscribe(connect(), "users")
    connect().subscribe("users")
    swept = threading.Event()

    def fail(_self: Bodies) -> int:
        swept.set()
        raise RuntimeError("cannot look")

    monkeypatch.setattr(Bodies, "sweep", fail)
    for _ in range(20):
        bus.publish("users", LARGE)
    assert swept.wait(10)
    for number in range(50):
        bus.publish("users", number)
    eventually(lambda: len(listener.data) == 70)


def test_pointers_and_bodies_removed_together_are_a_gap_and_no_error(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """As a purge does it."""
    connect().subscribe("users", ack="manual")
    listener = Listener()
    listener.go.clear()
    sub = listener.subscribe(connect(), "users", prefetch=1)
    for number in range(8):
        bus.publish("users", LARGE + bytes([number]))
    eventually(lambda: listener.data)
    queue = tree.queue(sub.id, "users")
    for name in raw.get_children(queue):
        raw.delete(f"{queue}/{name}")
        producer, number = parse_entry(name).body
        raw.delete(tree.body(producer, number))
    listener.go.set()
    eventually(lambda: listener.gaps)
    bus.publish("users", "later")
    eventually(lambda: listener.data[-1] == "later")
    assert listener.errors == []
