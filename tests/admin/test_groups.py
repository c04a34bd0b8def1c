"""bus.groups() and bus.queues(count=True): who reads what, how much waits, in which state, and since when."""

from __future__ import annotations

import os
import socket
import time

from tests.support.buses import Connect, Eventually
from zkms import Bus, GroupInfo, Message
from zkms.tree.records import Ledger, encode
from zkms.zookeeper.operations import Delete, SetData


def look(bus: Bus, name: str) -> GroupInfo:
    """The one of that name."""
    [found] = bus.groups(name=name)
    return found


def test_a_group_that_nobody_reads_says_how_much_waits(bus: Bus) -> None:
    """Declared ahead: no members, no owners, and the lag counts messages, not entries."""
    bus.create_group("jobs", "workers", partitions=4)
    before = time.time()
    bus.publish_many("jobs", range(100), key=str)
    info = look(bus, "workers")
    assert (info.topic, info.kind, info.state) == ("jobs", "group", "no members")
    assert (info.messages, info.ready, info.delayed, info.reserved, info.dead) == (100, 100, 0, 0, 0)
    assert info.entries < 100
    assert info.age is not None
    assert 0 <= info.age <= time.time() - before + 60  # ZooKeeper's clock is another one
    assert [part.partition for part in info.partitions] == [0, 1, 2, 3]
    assert {part.owner for part in info.partitions} == {""}
    assert sum(part.messages or 0 for part in info.partitions) == 100
    assert sum(part.stored for part in info.partitions) == info.entries


def test_members_and_owners_are_named(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Two members share the partitions; each is told by host and process, each partition by owner and epoch."""
    other = connect()
    first = bus.subscribe("jobs", group="workers", partitions=4)
    other.subscribe("jobs", group="workers")
    seen: list[GroupInfo] = []

    def is_shared() -> bool:
        seen.append(look(bus, "workers"))
        return seen[-1].state == "active" and [len(member.partitions) for member in seen[-1].members] == [2, 2]

    eventually(is_shared)
    info = seen[-1]
    assert [member.client for member in info.members] == sorted([bus.client_id, other.client_id])
    for member in info.members:
        assert (member.host, member.pid) == (socket.gethostname(), os.getpid())
        assert [p.partition for p in info.partitions if p.owner == member.client] == member.partitions
    assert all(part.epoch >= 1 for part in info.partitions)
    mine = next(member.partitions for member in info.members if member.client == bus.client_id)
    eventually(lambda: first.partitions == mine)


def test_a_message_is_in_one_state(bus: Bus, eventually: Eventually) -> None:
    """Ready, reserved, delayed, dead: each message that is given out moves from one to the next."""
    sub = bus.subscribe("jobs", name="audit", max_attempts=2)
    bus.publish_many("jobs", range(5), key=str)
    message = sub.get(10.0)
    assert message is not None
    eventually(lambda: look(bus, "audit").reserved == 1)
    info = look(bus, "audit")
    assert (info.kind, info.messages, info.ready, info.delayed) == ("durable", 5, 4, 0)
    message.nak(delay=600.0, error="not now")
    eventually(lambda: look(bus, "audit").reserved == 0)
    info = look(bus, "audit")
    assert (info.messages, info.ready, info.delayed, info.dead) == (5, 4, 1, 0)
    assert info.members[0].reserved == 0


def test_what_is_acked_waits_no_more(bus: Bus, eventually: Eventually) -> None:
    """Messages of an entry are counted one by one, as they are acked."""
    sub = bus.subscribe("jobs", name="audit")
    bus.publish_many("jobs", range(10))
    taken = sub.fetch(4, 10.0)
    sub.ack(taken[:3])
    taken[3].reject("bad")
    info = look(bus, "audit")
    assert (info.messages, info.dead) == (6, 1)
    while info.messages:
        sub.ack(sub.fetch(10, 10.0))
        info = look(bus, "audit")
    assert (info.entries, info.age, info.partitions[0].stored) == (0, None, info.partitions[0].removed)


def test_groups_can_be_chosen(bus: Bus) -> None:
    """By topic, by name, and both."""
    for topic, name in (("a", "x"), ("a", "y"), ("b", "x")):
        bus.create_group(topic, name, partitions=1)
    assert [(g.topic, g.name) for g in bus.groups()] == [("a", "x"), ("a", "y"), ("b", "x")]
    assert [(g.topic, g.name) for g in bus.groups("a")] == [("a", "x"), ("a", "y")]
    assert [(g.topic, g.name) for g in bus.groups(name="x")] == [("a", "x"), ("b", "x")]
    assert bus.groups("b", "y") == []


def test_an_owner_that_is_gone_is_not_taken_for_a_reader(bus: Bus, eventually: Eventually) -> None:
    """A ledger that still names a process which is no member any more: the group is not active."""
    sub = bus.subscribe("jobs", group="workers", partitions=1)
    eventually(lambda: sub.partitions == [0] and look(bus, "workers").state == "active")
    path = bus.parts.tree.ledger("workers", "jobs", 0)
    bus.parts.session.multi([SetData(path, encode(Ledger("somebody-else", "x", 7)))])
    info = look(bus, "workers")
    assert (info.state, info.partitions[0].owner, info.partitions[0].epoch) == ("rebalancing", "somebody-else", 7)
    assert info.members[0].partitions == []


def test_one_that_has_just_joined_keeps_what_it_has(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """A member that follows an old plan takes nothing from one that is there."""
    other = connect()
    theirs = other.subscribe("jobs", group="workers", partitions=2)
    eventually(lambda: theirs.partitions == [0, 1])
    mine = bus.subscribe("jobs", group="workers")
    eventually(lambda: len(theirs.partitions) == 1 and len(mine.partitions) == 1)
    [number] = theirs.partitions
    mine._rota._take(number)
    assert len(mine.partitions) == 1
    assert look(bus, "workers").partitions[number].owner == other.client_id


def test_a_reader_with_nothing_to_do_hears_of_a_takeover(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """There is nothing to be acked, which would tell: it looks by itself, and reads no more."""
    former = bus.subscribe("jobs", name="audit")
    eventually(lambda: look(bus, "audit").state == "active")
    other = connect()
    other.subscribe("jobs", name="audit", takeover=True)
    eventually(lambda: former.partitions == [])
    assert look(bus, "audit").partitions[0].owner == other.client_id


def test_a_long_queue_is_not_listed(bus: Bus) -> None:
    """Past the budget only entries are told, the shortest queues are counted, and nothing is invented."""
    bus.create_group("jobs", "short", partitions=1)
    bus.publish("jobs", "x")
    bus.create_group("jobs", "long", partitions=1)
    for number in range(5):
        bus.publish("jobs", number)
    assert (look(bus, "long").messages, look(bus, "short").messages) == (5, 6)
    found = {g.name: g for g in bus._groups.look(budget=7)}
    assert (found["long"].entries, found["long"].messages, found["long"].ready) == (5, 5, 5)
    assert (found["short"].entries, found["short"].messages, found["short"].age) == (6, None, None)


def test_garbage_does_not_stop_the_look(bus: Bus) -> None:
    """Records that another program has overwritten are shown as such; what is left of a removed group too."""
    bus.create_group("jobs", "workers", partitions=2)
    bus.create_group("jobs", "fine", partitions=1)
    bus.create_group("jobs", "removed", partitions=1)
    bus.parts.session.multi([SetData(bus.parts.tree.registration("jobs", "workers"), b"\xff{")])
    bus.parts.session.multi([SetData(bus.parts.tree.ledger("fine", "jobs", 0), b"oops")])
    bus.parts.session.multi([Delete(bus.parts.tree.registration("jobs", "removed"))])
    states = {g.name: (g.kind, g.state) for g in bus.groups()}
    assert states == {
        "workers": ("garbage", "garbage"),
        "fine": ("group", "no members"),
        "removed": ("", "gone"),
    }


def test_queues_are_counted_if_asked(bus: Bus, eventually: Eventually) -> None:
    """One look without listing, as before; with count=True the states of each queue, live ones too."""
    live = bus.subscribe("jobs", ack="manual")
    group = bus.subscribe("jobs", group="workers", partitions=2)
    bus.publish_many("jobs", range(6), key=str)
    plain = {q.subscription: q for q in bus.queues()}
    assert {q.kind for q in plain.values()} == {"live", "group"}
    assert (plain["workers#1"].partition, plain[live.id].partition) == (1, None)
    assert {q.messages for q in plain.values()} == {None}
    message: Message | None = group.get(10.0)
    assert message is not None
    eventually(lambda: sum(q.reserved or 0 for q in bus.queues(count=True)) == 1)
    message.reject("no good")
    counted = {q.subscription: q for q in bus.queues(count=True)}
    assert (counted[live.id].messages, counted[live.id].ready, counted[live.id].dead) == (6, 6, 0)
    lanes = [counted[f"workers#{number}"] for number in range(2)]
    assert sum(q.messages or 0 for q in lanes) == 5
    assert [q.dead for q in lanes] == [1, 1]


def test_subscriptions_tell_their_kind(bus: Bus) -> None:
    """Kind, partitions and what happens when they are full."""
    bus.subscribe("jobs")
    bus.create_group("jobs", "workers", partitions=3, overflow="drop-oldest", max_age=60.0)
    found = {s.kind: s for s in bus.subscriptions("jobs")}
    assert (found["live"].partitions, found["live"].overflow) == (1, "gap")
    group = found["group"]
    assert (group.partitions, group.overflow, group.max_age) == (3, "drop-oldest", 60.0)
