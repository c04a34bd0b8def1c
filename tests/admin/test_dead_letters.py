"""Dead letters: what is kept of a message that nobody could do with, and the ways out."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from zkms import Bus, DeadLetterInfo
from zkms.admin import dead_letters as letters
from zkms.consume.consumer import Consumer
from zkms.publish.routing import partition_of
from zkms.server.server import Server
from zkms.testing import Proxy
from zkms.tree.entry import parse_entry
from zkms.tree.paths import queue_of
from zkms.zookeeper.operations import Check, Create
from zkms.zookeeper.session import Session


def bury(bus: Bus, sub: Consumer, data: Any, reason: str = "no good", **options: Any) -> DeadLetterInfo:
    """Publish a message and reject it."""
    bus.publish("jobs", data, **options)
    message = sub.get(10.0)
    assert message is not None
    message.reject(reason)
    return bus.dead_letters("jobs", sub.id)[-1]


def test_a_letter_tells_all_there_is_to_know(bus: Bus) -> None:
    """The message as it was published, why it is here, what the last reader said, how often it was tried, when."""
    sub = bus.subscribe("jobs", group="workers", partitions=2, max_attempts=2, backoff=0.0)
    receipt = bus.publish("jobs", {"n": 1}, key="k", headers={"h": "v"}, id="order-1")
    for error in ("first", "second"):
        message = sub.get(10.0)
        assert message is not None
        message.nak(error=error)
    [letter] = bus.dead_letters()
    assert (letter.id, letter.topic, letter.subscription, letter.key) == ("order-1", "jobs", "workers", "k")
    assert (letter.data, letter.headers, letter.codec) == ({"n": 1}, {"h": "v"}, None)
    assert (letter.reason, letter.error, letter.attempts) == ("not done in 2 attempts", "second", 2)
    assert (letter.producer, letter.seq) == (receipt.producer, receipt.seq)
    assert abs(letter.at - time.time()) < 60
    assert not letter.foreign


def test_letters_are_chosen_by_topic_and_subscription(bus: Bus) -> None:
    """All, one topic's, one subscription's; the oldest first, and no more than asked for."""
    for topic, name in (("a", "x"), ("b", "x"), ("a", "y")):
        bus.subscribe(topic, name=name)
    for topic in ("a", "a", "b"):
        bus.publish(topic, "data")
    for sub in bus.parts.subscriptions.consumers.values():
        while (message := sub.get(1.0)) is not None:
            message.reject(f"by {sub.id}")
    listed = [(d.subscription, d.topic) for d in bus.dead_letters()]
    assert listed == [("x", "a"), ("x", "a"), ("x", "b"), ("y", "a"), ("y", "a")]
    assert len(bus.dead_letters("a")) == 4
    assert len(bus.dead_letters(subscription="x")) == 3
    assert [d.seq for d in bus.dead_letters("a", "x")] == sorted(d.seq for d in bus.dead_letters("a", "x"))
    assert bus.dead_letters("a", "x", limit=1) == bus.dead_letters("a", "x")[:1]
    with pytest.raises(zkms.InvalidArgument, match="limit"):
        bus.dead_letters(limit=0)


def test_a_requeued_letter_is_delivered_again(bus: Bus) -> None:
    """The same message, in its key's partition, with all its attempts before it; the letter is gone."""
    sub = bus.subscribe("jobs", group="workers", partitions=8, max_attempts=1)
    letter = bury(bus, sub, "data", key="k", id="order-1", headers={"a": "b"})
    bus.requeue(letter)
    assert bus.dead_letters() == []
    message = sub.get(10.0)
    assert message is not None
    assert (message.data, message.key, message.id, message.seq) == ("data", "k", "order-1", letter.seq)
    assert (message.attempts, dict(message.headers), message.published_at) == (1, {"a": "b"}, letter.published_at)
    assert message.entry.lane.partition == partition_of("k", 8)
    message.ack()


def test_letters_without_a_key_are_spread(bus: Bus) -> None:
    """Large ones too, which do not fit into an entry's name."""
    sub = bus.subscribe("jobs", group="workers", partitions=4)
    buried = [bury(bus, sub, f"{number}" + "x" * 1000) for number in range(12)]
    sub.close()
    for letter in buried:
        bus.requeue(letter)
    [info] = bus.groups()
    assert info.messages == 12
    assert len([p for p in info.partitions if p.messages]) > 1


def test_a_letter_is_requeued_once(bus: Bus, connect: Connect) -> None:
    """By however many at the same time: one succeeds, the others are told."""
    sub = bus.subscribe("jobs", name="audit")
    letter = bury(bus, sub, "data")
    sub.close()
    buses = [connect() for _ in range(4)]
    begin = threading.Barrier(len(buses))
    outcomes: list[object] = []

    def requeue(each: Bus) -> None:
        begin.wait(30)
        try:
            outcomes.append(each.requeue(letter))
        except zkms.NodeMissing as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=requeue, args=(each,)) for each in buses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes.count(None) == 1
    assert all("by somebody else" in str(outcome) for outcome in outcomes if outcome is not None)
    assert bus.groups()[0].messages == 1


def test_a_lost_reply_requeues_once(bus: Bus, zookeeper: Server, zookeeper_root: str) -> None:
    """The transaction was carried out and its answer lost: requeue() finds that out."""
    sub = bus.subscribe("jobs", name="audit")
    letter = bury(bus, sub, "data")
    sub.close()
    with Proxy(zookeeper.hosts) as proxy, zkms.connect(proxy.hosts, root=zookeeper_root, cleaner=False) as cut_off:
        lost = proxy.cut_reply(op="multi")
        cut_off.requeue(letter)
        assert lost.is_set()
    assert (bus.groups()[0].messages, bus.dead_letters()) == (1, [])


@pytest.mark.parametrize("checked", [True, False], ids=["", "without-the-check"])
def test_a_group_that_was_made_anew_gets_it_by_its_own_partitions(
    checked: bool, bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group is replaced by one with other partitions between the look and the transaction: seen by the epoch.

    Without the check of the epoch it would go where its key does not belong.
    """
    sub = bus.subscribe("jobs", group="workers", partitions=1)
    letter = bury(bus, sub, "data", key="some key")
    sub.close()
    other = connect()
    assert partition_of("some key", 64) != 0
    multi = Session.multi
    meddled: list[bool] = []

    def meddle(session: Session, operations: Any, **options: Any) -> Any:
        if session is bus.parts.session and not meddled:
            meddled.append(True)
            other.parts.durable_registration.dismiss("jobs", "workers")
            other.create_group("jobs", "workers", partitions=64)
        return multi(session, operations, **options)

    monkeypatch.setattr(Session, "multi", meddle)
    if not checked:
        monkeypatch.setattr(letters, "Check", lambda path, _version: Check(path, -1))
    bus.requeue(letter)
    monkeypatch.undo()
    assert meddled
    filled = [p.partition for p in bus.groups()[0].partitions if p.messages]
    assert filled == [partition_of("some key", 64) if checked else 0]


def test_what_has_expired_is_delivered_when_requeued(bus: Bus, eventually: Eventually) -> None:
    """Whoever requeues it wants it delivered, although its time was over."""
    sub = bus.subscribe("jobs", name="audit")
    letter = bury(bus, sub, "data", ttl=1.0, key="k")
    eventually(lambda: time.time() > letter.published_at + 1.1)
    bus.requeue(letter)
    message = sub.get(10.0)
    assert message is not None
    assert (message.data, message.key, message.expires) == ("data", "k", None)


def test_what_cannot_be_requeued_says_why(bus: Bus) -> None:
    """No subscription any more, a full one, a letter that is gone, and no letter at all: nothing is changed."""
    sub = bus.subscribe("jobs", name="audit", limit=2)
    letter = bury(bus, sub, "data")
    bus.publish_many("jobs", ["a"])
    bus.publish_many("jobs", ["b"])
    with pytest.raises(zkms.QueueFull):
        bus.requeue(letter)
    sub.unsubscribe()
    with pytest.raises(zkms.NotSubscribed, match="nobody is registered as 'audit'"):
        bus.requeue(letter)
    assert bus.dead_letters() == [letter]
    assert bus.purge_dead(letter) == 1
    with pytest.raises(zkms.NodeMissing, match="by somebody else"):
        bus.requeue(letter)
    with pytest.raises(zkms.InvalidArgument, match=r"bus.dead_letters\(\)"):
        bus.requeue("order-1")  # type: ignore[arg-type]


def test_what_is_no_message_is_listed_too(bus: Bus, eventually: Eventually) -> None:
    """What was found in a queue and is not ours, with what can be told of it; it can be purged, not requeued."""
    sub = bus.subscribe("jobs", group="workers", partitions=1)
    lane = queue_of("workers", 0)
    queue = bus.parts.tree.queue(lane, "jobs")
    bus.parts.session.multi([Create(f"{queue}/intruder", b"hello")])
    bus.parts.session.multi([Create(f"{queue}/f.1.20.", b"zkms" + bytes(20), sequence=True)])
    eventually(lambda: sub.get(0.1) is None and len(bus.dead_letters()) == 2)
    found = {letter.id: letter for letter in bus.dead_letters("jobs", "workers")}
    intruder = found.pop("intruder")
    assert (intruder.foreign, intruder.data, intruder.topic) == (True, b"hello", "jobs")
    assert intruder.reason == "set aside: not a name that zkms gives"
    [damaged] = found.values()
    assert damaged.reason.startswith("set aside: ")
    assert not parse_entry(damaged.id).foreign
    with pytest.raises(zkms.InvalidArgument, match="it can be purged"):
        bus.requeue(intruder)
    assert bus.groups()[0].dead == 2
    assert bus.purge_dead(subscription="workers") == 2


def test_purging_takes_what_was_asked_for(bus: Bus) -> None:
    """One letter, one subscription's, all; how many is told, and nothing else is touched."""
    for name in ("x", "y"):
        sub = bus.subscribe("jobs", name=name)
        for number in range(3):
            bury(bus, sub, number)
        sub.close()
    first, *_ = bus.dead_letters("jobs", "x")
    assert bus.purge_dead(first) == 1
    assert bus.purge_dead(first) == 0
    with pytest.raises(zkms.InvalidArgument, match="not both"):
        bus.purge_dead(first, topic="jobs")
    assert bus.purge_dead(topic="jobs", subscription="x") == 2
    assert {letter.subscription for letter in bus.dead_letters()} == {"y"}
    assert bus.purge_dead() == 3
    assert bus.dead_letters() == []
