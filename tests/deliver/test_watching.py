"""How a reader hears of entries: by name, without a listing; and what it does where that does not work."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.buses import Connect, Eventually
from tests.support.listener import Listener
from zkms import Bus, InvalidArgument
from zkms.deliver.reader import Reader
from zkms.testing import Proxy
from zkms.tree.entry import carried, entry_prefix, parse_entry
from zkms.tree.paths import Tree
from zkms.zookeeper.session import State
from zkms.zookeeper.wire import CREATED

LARGE = "x" * 1000


def test_a_small_message_needs_no_request_but_its_ack(
    bus: Bus, connect: Connect, proxy: Proxy, eventually: Eventually
) -> None:
    """The event that tells of it has it, and no queue is listed."""
    listener = Listener()
    listener.subscribe(connect(hosts=proxy.hosts), "users")
    bus.publish("users", "first").wait(10)
    before = proxy.requests
    for number in range(20):
        bus.publish("users", number).wait(10)
    assert listener.data == ["first", *range(20)]
    used = proxy.requests - before
    assert set(used) <= {"multi", "ping"}, used
    assert used["multi"] <= 20


def test_a_large_message_needs_one_get_and_its_ack(bus: Bus, connect: Connect, proxy: Proxy) -> None:
    """Whether it is in the queue itself, or a body that several queues point to."""
    for subscribers in (1, 20):
        topic = f"topic-{subscribers}"
        listener = Listener()
        for _ in range(subscribers - 1):
            connect().subscribe(topic, lambda _message: None)
        listener.subscribe(connect(hosts=proxy.hosts), topic)
        bus.publish(topic, "first").wait(20)
        before = proxy.requests
        for _ in range(10):
            bus.publish(topic, LARGE).wait(20)
        assert listener.data == ["first"] + [LARGE] * 10
        used = proxy.requests - before
        assert set(used) <= {"multi", "ping", "get_data"}, used
        assert used["get_data"] == 10


def test_names_carry_what_is_small_and_nothing_else(
    bus: Bus, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """Any ZooKeeper tool sees how many messages an entry holds, and how many bytes."""
    sub = bus.subscribe("users", ack="manual", prefetch=1)
    bus.publish("users", "small")
    bus.publish("users", LARGE)
    small, large = sorted(map(parse_entry, raw.get_children(tree.queue(sub.id, "users"))))
    assert small.carrier
    assert len(carried(small.name)) == small.size
    assert raw.get(f"{tree.queue(sub.id, 'users')}/{small.name}")[0] == b""
    assert not large.carrier
    assert len(raw.get(f"{tree.queue(sub.id, 'users')}/{large.name}")[0]) == large.size


def swallow_an_event(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lose the next event that tells of a new entry."""
    rung = Reader._rung
    lost: list[str] = []

    def once(reader: Reader, kind: int, name: str) -> None:
        if kind == CREATED and not lost:
            lost.append(name)
        else:
            rung(reader, kind, name)

    monkeypatch.setattr(Reader, "_rung", once)
    return lost


def test_an_event_that_does_not_come_is_noticed_at_the_next_number(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """ZooKeeper numbers the entries without a break, so the queue is looked at, and nothing is missed."""
    lost = swallow_an_event(monkeypatch)
    listener = Listener()
    listener.subscribe(connect(), "users")
    bus.publish("users", 1)
    eventually(lambda: lost)
    bus.publish("users", 2)
    bus.publish("users", 3)
    eventually(lambda: len(listener.data) == 3)
    assert listener.data == [1, 2, 3]
    assert listener.gaps == []


def test_without_the_numbers_it_would_be_missed_in_silence(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Breaking it on purpose: a reader that takes any number for the next one."""
    lost = swallow_an_event(monkeypatch)
    rung = Reader._rung

    def careless(reader: Reader, kind: int, name: str) -> None:
        if kind == CREATED and lost:
            reader._created = parse_entry(name).sequence
        rung(reader, kind, name)

    monkeypatch.setattr(Reader, "_rung", careless)
    listener = Listener()
    listener.subscribe(connect(), "users")
    bus.publish("users", 1)
    eventually(lambda: lost)
    bus.publish("users", 2)
    eventually(lambda: listener.data == [2])


def exchange(bus: Bus, listener: Listener, eventually: Eventually) -> None:
    """Small, large and many, before and after a reconnect."""
    expected: list[Any] = []
    for _ in range(2):
        batch = ["small", LARGE, *range(50)]
        for data in batch:
            bus.publish("users", data)
        expected.extend(batch)
        eventually(lambda: listener.data == expected)
    assert listener.gaps == []


def test_a_server_without_persistent_watches_is_listed_at_each_change(
    bus: Bus, connect: Connect, proxy: Proxy, eventually: Eventually
) -> None:
    """As ZooKeeper before 3.6: it answers that it does not know the operation, and hangs up."""
    proxy.age("add_watch")
    reader = connect(hosts=proxy.hosts, session_timeout=8.0)
    listener = Listener()
    listener.subscribe(reader, "users")
    exchange(bus, listener, eventually)
    assert reader.parts.session.old_server
    assert proxy.requests["add_watch"] == 1
    proxy.drop()
    eventually(lambda: reader.parts.session.state is State.CONNECTED)
    exchange_again = ["after the reconnect", LARGE]
    for data in exchange_again:
        bus.publish("users", data)
    eventually(lambda: listener.data[-2:] == exchange_again)
    assert listener.gaps == []
    with reader.subscribe("other") as other:
        bus.publish("other", 1)
        assert other.get(timeout=10).data == 1


def test_a_watch_is_set_again_after_a_reconnect(
    bus: Bus, connect: Connect, proxy: Proxy, eventually: Eventually
) -> None:
    """What came meanwhile is read, once and in order, and so is what comes then."""
    reader = connect(hosts=proxy.hosts, session_timeout=8.0)
    listener = Listener()
    listener.subscribe(reader, "users")
    expected: list[int] = []
    for number in range(5):
        proxy.refuse()
        proxy.drop()
        expected.extend([number * 10, number * 10 + 1])
        bus.publish("users", number * 10)
        bus.publish("users", number * 10 + 1)
        proxy.accept()
        eventually(lambda: listener.data == expected)
    assert listener.gaps == []


def test_an_operation_that_zookeeper_does_not_have_cannot_be_aged(proxy: Proxy) -> None:
    """A typing error must not make a test pass."""
    with pytest.raises(InvalidArgument, match="add_wach"):
        proxy.age("add_wach")


def test_every_gap_is_announced_also_among_small_messages(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """What was removed before it was read, twice: two gaps, with what came between them between them."""
    listener = Listener()
    listener.go.clear()
    sub = listener.subscribe(connect(), "users", prefetch=1)
    queue = tree.queue(sub.id, "users")
    for number in range(8):
        bus.publish("users", number)
    entries = sorted(map(parse_entry, raw.get_children(queue)))
    for place in (3, 6):
        raw.delete(f"{queue}/{entries[place].name}")
    assert sub._reader is not None
    eventually(lambda: len(sub._reader._known) == 6)  # type: ignore[union-attr]
    listener.go.set()
    eventually(lambda: len(listener.data) == 6)
    assert listener.data == [0, 1, 2, 4, 5, 7]
    assert len(listener.gaps) == 2


def test_a_queue_that_was_made_again_while_nobody_looked_is_a_gap(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, proxy: Proxy, eventually: Eventually
) -> None:
    """Its numbers begin anew, and an entry may have the name of one that was read before."""
    reader = connect(hosts=proxy.hosts, session_timeout=30.0)
    listener = Listener()
    sub = listener.subscribe(reader, "users")
    bus.publish("users", LARGE).wait(10)
    queue = tree.queue(sub.id, "users")
    proxy.refuse()
    proxy.drop()
    eventually(lambda: reader.parts.session.state is State.SUSPENDED)
    state, _ = raw.get(queue)
    raw.delete(queue)
    raw.create(queue, state)
    bus.publish("users", LARGE.upper())
    proxy.accept()
    eventually(lambda: listener.data == [LARGE, LARGE.upper()])
    eventually(lambda: listener.gaps)


def test_a_gap_does_not_overtake_what_was_heard_of_before_it(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, proxy: Proxy, eventually: Eventually
) -> None:
    """Entries that wait for room come first, though the gap is noticed before they are taken."""
    reader = connect(hosts=proxy.hosts, session_timeout=30.0)
    heard: list[object] = []
    sub = reader.subscribe("users", prefetch=1, on_gap=lambda _gap: heard.append("gap"))
    for number in range(3):
        bus.publish("users", number)
    assert sub._reader is not None
    eventually(lambda: len(sub._reader._heard) == 2)  # type: ignore[union-attr]
    proxy.refuse()
    proxy.drop()
    eventually(lambda: reader.parts.session.state is State.SUSPENDED)
    bus.publish("users", "removed")
    queue = tree.queue(sub.id, "users")
    raw.delete(f"{queue}/{max(map(parse_entry, raw.get_children(queue))).name}")
    bus.publish("users", "last")
    proxy.accept()
    eventually(lambda: sub._reader._created == 5)  # type: ignore[union-attr]
    while "last" not in heard:
        message = sub.get(timeout=20)
        assert message is not None
        heard.append(message.data)
    assert heard == [0, 1, 2, "gap", "last"]


def test_a_gap_does_not_overtake_what_is_being_fetched(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """A small entry that is gone at once is a gap behind the large one that was there before it."""
    reader = connect()
    heard: list[object] = []
    sub = reader.subscribe("users", on_gap=lambda _gap: heard.append("gap"))
    queue = tree.queue(sub.id, "users")
    eventually(lambda: sub._reader is not None and sub._reader._made)  # from then on by events alone
    for number in range(0, 20, 2):
        go = threading.Event()
        reader.parts.session.post(go.wait, 5.0)  # all that happens now is heard of at once
        bus.publish("users", LARGE)
        name = f"{queue}/{entry_prefix(1, 5, carried=b'other')}{number + 1:010}"
        multi = raw.transaction()
        multi.create(name)
        multi.delete(name)
        assert not any(isinstance(result, Exception) for result in multi.commit())
        time.sleep(0.1)  # until both events are there, as a rule; if not, the small one is no gap: try again
        go.set()
        message = sub.get(timeout=20)
        assert message is not None
        heard.append(message.data)
        deadline = time.monotonic() + 5.0
        while "gap" not in heard and time.monotonic() < deadline:
            assert sub.get(timeout=0.1) is None
        if "gap" in heard:
            break
    assert heard == [LARGE] * (len(heard) - 1) + ["gap"]
