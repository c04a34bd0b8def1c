"""ZooKeeper's numbers are int32: a queue whose numbers come to their end is replaced."""

from __future__ import annotations

import threading

import pytest

from tests.support.buses import Connect, Eventually
from tests.support.listener import Listener
from zkms import Bus
from zkms.server.server import Server
from zkms.testing import Proxy


@pytest.fixture(autouse=True)
def _few_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two billion messages would take a while."""
    monkeypatch.setattr("zkms.deliver.reader.WORN_AT", 10)


def test_a_queue_is_replaced_without_a_gap(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """While it is empty, in one transaction: publishers go on with the new one, and nothing is missed."""
    listener = Listener()
    sub = listener.subscribe(connect(), "users")
    first = sub.id
    for number in range(40):
        bus.publish("users", number)
    eventually(lambda: len(listener.data) == 40)
    eventually(lambda: sub.id != first)
    bus.publish("users", "in the new one")
    eventually(lambda: listener.data == [*range(40), "in the new one"])
    assert listener.gaps == []
    assert [info.subscription for info in bus.subscriptions("users")] == [sub.id]
    eventually(lambda: [queue.subscription for queue in bus.queues()] == [sub.id])


def test_nothing_is_missed_while_publishers_never_pause(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Over several replacements, each at a moment at which the queue happens to be empty."""
    listener = Listener()
    sub = listener.subscribe(connect(), "users")
    ids = {sub.id}
    stop = threading.Event()
    published = 0

    def publish() -> None:
        nonlocal published
        while not stop.is_set():
            bus.publish("users", published)
            published += 1

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        eventually(lambda: ids.add(sub.id) or len(ids) >= 3, timeout=60)
    finally:
        stop.set()
        publisher.join()
    eventually(lambda: len(listener.data) == published)
    assert listener.data == list(range(published))
    assert listener.gaps == []


def test_a_queue_that_is_never_empty_is_given_up_in_the_end(
    bus: Bus, connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its numbers are used up; what it still held is announced as a gap."""
    monkeypatch.setattr("zkms.subscribe.live_registration.TOO_WORN", 2**31)
    listener = Listener()
    sub = listener.pull(connect(), "users", ack="manual")
    first = sub.id
    for number in range(12):
        bus.publish("users", number)
    assert [sub.get(timeout=10).data for _ in range(12)] == list(range(12))
    eventually(lambda: sub.id != first)
    bus.publish("users", "after")
    eventually(lambda: (message := sub.get(timeout=0.1)) is not None and message.data == "after")
    (gap,) = listener.gaps
    assert "no numbers left" in gap.reason


@pytest.mark.parametrize("place", range(1, 6))
def test_a_replacement_survives_the_loss_of_an_answer(
    bus: Bus, connect: Connect, zookeeper: Server, eventually: Eventually, place: int
) -> None:
    """Of its transaction, or of any other at that time."""
    listener = Listener()
    with Proxy(zookeeper.hosts) as proxy:
        sub = listener.subscribe(connect(hosts=proxy.hosts, session_timeout=8.0), "users")
        first = sub.id
        for number in range(9):
            bus.publish("users", number).wait(10)
        proxy.cut_reply(place, op="multi")
        bus.publish("users", 9)
        eventually(lambda: sub.id != first)
        for number in range(10, 15):
            bus.publish("users", number)
        eventually(lambda: len(listener.data) >= 15)
        assert listener.data == list(range(15))
        assert listener.gaps == []
        sub.unsubscribe()
