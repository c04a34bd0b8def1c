"""Big frames are stored once: everybody gets them, nobody loses them, and they are freed."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from zkms_cleaner import Election, Sweeper

from zkms import Bus, MessageTooLarge
from zkms.errors import CannotDecode
from zkms.publish.bodies import Bodies
from zkms.testing import expire
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import MAX_TRANSACTION

BIG = b"x" * 20_000


def bodies(raw: KazooClient, tree: Tree) -> list[str]:
    """All bodies in the tree."""
    return [
        f"{tree.bodies_of(producer)}/{number}"
        for producer in raw.get_children(tree.bodies)
        for number in raw.get_children(tree.bodies_of(producer))
    ]


def test_a_big_message_to_several_is_stored_once(bus, connect, raw, tree) -> None:
    """The queues hold empty entries whose names point to it; everybody gets it whole."""
    subs = [connect().subscribe("users", ack="manual") for _ in range(3)]
    receipt = bus.publish("users", BIG, key="k")
    (body,) = bodies(raw, tree)
    assert raw.exists(body).dataLength > len(BIG)
    for sub in subs:
        (name,) = raw.get_children(tree.queue(sub.id, "users"))
        assert raw.get(f"{tree.queue(sub.id, 'users')}/{name}")[0] == b""
        assert parse_entry(name).body == (receipt.producer, receipt.seq)
        message = sub.get(timeout=5)
        assert (message.data, message.key) == (BIG, "k")
        message.ack()
    assert set(receipt.wait(timeout=5).acked) == {sub.id for sub in subs}


def test_small_messages_and_single_subscribers_need_no_body(bus, connect, raw, tree) -> None:
    """A copy is cheaper there."""
    first = connect().subscribe("users")
    bus.publish("users", BIG)
    second = connect().subscribe("users")
    bus.publish("users", "small")
    assert [first.get(timeout=5).data for _ in range(2)] == [BIG, "small"]
    assert second.get(timeout=5).data == "small"
    assert bodies(raw, tree) == []


def test_a_message_may_be_as_large_for_twenty_as_for_one(bus, connect) -> None:
    """The limit is that of one transaction, whoever subscribes; past it the caller is told."""
    subs = [connect().subscribe("users") for _ in range(20)]
    large = b"x" * (MAX_TRANSACTION - 20_000)
    bus.publish("users", large)
    assert all(sub.get(timeout=10).data == large for sub in subs)
    with pytest.raises(MessageTooLarge):
        bus.publish("users", b"x" * MAX_TRANSACTION)


def test_bodies_are_freed_when_the_last_subscriber_has_acked(bus, connect, raw, tree, eventually) -> None:
    """And not before: a slow subscriber keeps what it has not read, and gets it."""
    quick, slow = connect().subscribe("users"), connect().subscribe("users", ack="manual")
    for number in range(5):
        bus.publish("users", BIG + bytes([number]))
    assert [quick.get(timeout=5).data[-1] for _ in range(5)] == list(range(5))
    messages = [slow.get(timeout=5) for _ in range(5)]
    for message in messages[:3]:
        message.ack()
    eventually(lambda: len(bodies(raw, tree)) == 2)
    assert [message.data[-1] for message in messages[3:]] == [3, 4]
    for message in messages[3:]:
        message.ack()
    eventually(lambda: not bodies(raw, tree))


def check_nothing_unread_is_freed(bus: Bus, connect, raw: KazooClient, tree: Tree, eventually) -> None:
    """A subscriber that reads late gets all of it, however often the publisher looks for bodies to free."""
    errors: list[Exception] = []
    first, late = (
        connect().subscribe("users"),
        connect().subscribe("users", on_error=lambda e, m: errors.append(e), prefetch=1),
    )
    for number in range(10):
        bus.publish("users", BIG + bytes([number]))
    assert len([*iter(lambda: first.get(timeout=2), None)]) == 10
    publisher = bus.parts.pipeline
    for _ in range(3):
        publisher._producer.bodies.sweep()
    got = [message.data[-1] for message in iter(lambda: late.get(timeout=2), None)]
    assert got == list(range(10)), errors


def test_nothing_unread_is_freed(bus, connect, raw, tree, eventually) -> None:
    """A name in any queue keeps a body."""
    check_nothing_unread_is_freed(bus, connect, raw, tree, eventually)


def test_without_looking_at_the_names_messages_would_be_lost(bus, connect, raw, tree, eventually, monkeypatch) -> None:
    """Breaking it on purpose: the test above would notice."""
    monkeypatch.setattr("zkms.publish.bodies.names_in", lambda session, queues: set())
    with pytest.raises(AssertionError):
        check_nothing_unread_is_freed(bus, connect, raw, tree, eventually)


def test_a_body_that_somebody_removed_is_an_error_and_a_gap_not_silence(bus, connect, raw, tree) -> None:
    """The pointer is set aside, later messages arrive."""
    errors, gaps = [], []
    connect().subscribe("users", ack="manual")
    other = connect()
    sub = other.subscribe("users", prefetch=1, on_error=lambda e, m: errors.append(e), on_gap=gaps.append)
    for number in range(3):
        bus.publish("users", BIG + bytes([number]))
    assert sub.get(timeout=5).data[-1] == 0
    raw.delete(bodies(raw, tree)[-1])
    bus.publish("users", "later")
    got = []
    while not got or got[-1] != "later":
        message = sub.get(timeout=5)
        assert message is not None
        got.append(message.data if message.data == "later" else message.data[-1])
    if got != [1, 2, "later"]:  # it had been read before it was removed
        assert len(got) == 2
        assert [type(error) for error in errors] == [CannotDecode]
        assert "body" in str(errors[0])
        assert gaps


def test_a_producer_that_comes_back_frees_what_it_left(connect, raw, tree, eventually) -> None:
    """By its name."""
    subs = [connect().subscribe("users", ack="manual") for _ in range(2)]
    first = connect(producer="orders")
    first.publish("users", BIG)
    first.close()
    assert len(bodies(raw, tree)) == 1
    for sub in subs:
        sub.get(timeout=5).ack()
    second = connect(producer="orders")
    second.publish("users", "hello")
    eventually(lambda: not bodies(raw, tree))


def test_the_cleaner_frees_what_dead_producers_left_once_nobody_needs_it(connect, raw, tree, eventually) -> None:
    """A body that a queue still names stays, and is delivered."""
    subs = [connect().subscribe("users", ack="manual") for _ in range(2)]
    dead = connect()
    dead.publish("users", BIG)
    dead.publish("users", BIG + b"2")
    dead.close()
    for sub in subs:
        sub.get(timeout=5).ack()
    cleaner = connect(cleaner=False)
    election = Election(cleaner.parts.session, cleaner.parts.tree, cleaner.client_id)
    lead = election.lead()
    assert lead is not None
    sweeper = Sweeper(cleaner.parts.session, cleaner.parts.tree, grace=0)
    eventually(lambda: all(bus_entries(raw, tree, sub) == 1 for sub in subs))
    sweeper.sweep(lead)
    sweeper.sweep(lead)
    assert len(bodies(raw, tree)) == 1
    assert [sub.get(timeout=5).data[-1:] for sub in subs] == [b"2", b"2"]


def bus_entries(raw: KazooClient, tree: Tree, sub) -> int:
    """Entries in a subscription's queue."""
    return len(raw.get_children(tree.queue(sub.id, "users")))


def test_an_expired_session_does_not_lose_bodies(bus, connect, raw, tree, eventually) -> None:
    """What stood in the queue before the expiry is delivered, bodies included."""
    connect().subscribe("users")
    other = connect()
    sub = other.subscribe("users", prefetch=1)
    for number in range(4):
        bus.publish("users", BIG + bytes([number]))
    expire(other)
    expire(bus)
    assert [sub.get(timeout=10).data[-1] for _ in range(4)] == [0, 1, 2, 3]


def test_many_big_messages_are_bounded_in_zookeeper(bus, connect, raw, tree, monkeypatch) -> None:
    """A publisher past its budget waits until something could be freed, and all of it arrives in order."""
    monkeypatch.setattr("zkms.publish.bodies.MAX_BYTES", 300_000)
    monkeypatch.setattr("zkms.publish.bodies.SWEEP_BYTES", 50_000)
    got: list[int] = []
    most = 0
    connect().subscribe("users", lambda m: got.append(m.headers["n"]))
    connect().subscribe("users", lambda m: None)
    for number in range(60):
        bus.publish("users", BIG, headers={"n": str(number)})
        most = max(most, len(bodies(raw, tree)))
    assert most * len(BIG) < 400_000
    assert bus.parts.pipeline._producer.bodies.__class__ is Bodies
