"""Readers that leave while ZooKeeper does not answer: nobody waits for them when it does, while their process lives."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.buses import Connect, Eventually
from zkms import Bus, ConnectionLost, Consumer
from zkms.consume.group_member import GroupMember
from zkms.subscribe.live_registration import LiveRegistration
from zkms.testing import Proxy
from zkms.zookeeper.operations import Create, Operation
from zkms.zookeeper.session import State

LONG = 60.0
"""Seconds of a session: much longer than these tests wait."""


def close_while_cut_off(sub: Consumer, worker: Bus, proxy: Proxy, eventually: Eventually) -> None:
    """Close a subscription when ZooKeeper cannot be told; it can again when this returns."""
    proxy.refuse()
    proxy.drop()
    eventually(lambda: worker.parts.session.state is not State.CONNECTED)
    began = time.monotonic()
    sub.close(timeout=2.0)
    assert time.monotonic() - began < 5.0
    proxy.accept()


def numbers(sub: Consumer, count: int, within: float = 20.0) -> set[Any]:
    """What comes, until it is so much."""
    got: set[Any] = set()
    deadline = time.monotonic() + within
    while len(got) < count and time.monotonic() < deadline:
        messages = sub.fetch(10, timeout=1)
        got |= {message.data for message in messages}
        sub.ack(messages)
    return got


def check_a_member_that_has_left_is_not_waited_for(
    bus: Bus,
    connect: Connect,
    proxy: Proxy,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    within: float = 20.0,
) -> None:
    """Not said so, it would keep its partitions as long as its process lives."""
    worker = connect(hosts=proxy.hosts, session_timeout=LONG)
    sub = worker.subscribe("jobs", group="workers", partitions=2)
    eventually(lambda: sub.partitions == [0, 1])
    monkeypatch.setattr(sub, "_give_back", lambda *_args: False)  # nor has a slow thread time for it
    close_while_cut_off(sub, worker, proxy, eventually)
    bus.publish_many("jobs", range(10), key=str)
    assert numbers(connect().subscribe("jobs", group="workers"), 10, within) == set(range(10))
    assert worker.parts.session.generation == 1  # no session's end has helped


def test_a_member_that_has_left_is_not_waited_for(
    bus: Bus, connect: Connect, proxy: Proxy, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one has its partitions as soon as ZooKeeper answers."""
    check_a_member_that_has_left_is_not_waited_for(bus, connect, proxy, eventually, monkeypatch)


def test_unless_that_is_told_later_it_would_be(
    bus: Bus, connect: Connect, proxy: Proxy, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism is what does it."""
    monkeypatch.setattr(LiveRegistration, "_take_away", lambda *_args: None)
    with pytest.raises(AssertionError, match="set"):
        check_a_member_that_has_left_is_not_waited_for(bus, connect, proxy, eventually, monkeypatch, within=4.0)


def test_a_durable_subscription_can_be_read_elsewhere(
    bus: Bus, connect: Connect, proxy: Proxy, eventually: Eventually
) -> None:
    """And is not in use by one that has closed it."""
    worker = connect(hosts=proxy.hosts, session_timeout=LONG)
    sub = worker.subscribe("jobs", name="ledger")
    bus.publish_many("jobs", range(10))
    close_while_cut_off(sub, worker, proxy, eventually)
    member = bus.parts.tree.member("ledger", "jobs", worker.client_id)
    eventually(lambda: bus.parts.session.exists(member) is None)
    assert numbers(connect().subscribe("jobs", name="ledger"), 10) == set(range(10))
    assert worker.parts.session.generation == 1


def check_one_that_is_back_does_not_keep_what_it_has_forgotten(
    bus: Bus,
    connect: Connect,
    proxy: Proxy,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    within: float = 20.0,
) -> None:
    """The partitions that it could not give back are read by whom the plan gives them to."""
    worker = connect(hosts=proxy.hosts, session_timeout=LONG, client_id="b")
    sub = worker.subscribe("jobs", group="workers", partitions=2)
    eventually(lambda: sub.partitions == [0, 1])
    monkeypatch.setattr(
        worker.parts.live_registration, "_take_away", lambda *_args: None
    )  # it is back before that is done
    monkeypatch.setattr(sub, "_give_back", lambda *_args: False)  # nor has a slow thread time for it
    close_while_cut_off(sub, worker, proxy, eventually)
    eventually(lambda: worker.parts.session.state is State.CONNECTED and not sub._rota._thread.is_alive())
    other = connect(client_id="a").subscribe("jobs", group="workers")  # the first by name: it makes the plan
    plan = bus.parts.tree.group("workers", "jobs")
    eventually(lambda: b'"a"' in bus.parts.session.get(plan)[0])
    again = worker.subscribe("jobs", group="workers")
    bus.publish_many("jobs", range(10), key=str)
    eventually(lambda: sorted(other.partitions + again.partitions) == [0, 1], timeout=within)
    assert numbers(other, 1)
    assert worker.parts.session.generation == 1


def test_one_that_is_back_does_not_keep_what_it_has_forgotten(
    bus: Bus, connect: Connect, proxy: Proxy, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim is its member's, and a member is a new one each time."""
    check_one_that_is_back_does_not_keep_what_it_has_forgotten(bus, connect, proxy, eventually, monkeypatch)


def test_unless_a_claim_was_its_members_it_would(
    bus: Bus, connect: Connect, proxy: Proxy, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism is what does it."""
    known = GroupMember._is_member
    monkeypatch.setattr(GroupMember, "_is_member", lambda self, client, _since: known(self, client, 2**63))
    with pytest.raises(AssertionError, match="did not come true"):
        check_one_that_is_back_does_not_keep_what_it_has_forgotten(
            bus, connect, proxy, eventually, monkeypatch, within=4.0
        )


def test_a_reader_that_leaves_late_does_not_take_its_successors_place(bus: Bus, connect: Connect) -> None:
    """Both are of one process, and their znodes have one path."""
    worker = connect()
    first = worker.subscribe("jobs", group="workers", partitions=1)
    first.close()
    second = worker.subscribe("jobs", group="workers")
    first._rota.leave()
    assert bus.parts.session.exists(bus.parts.tree.member("workers", "jobs", worker.client_id)) is not None
    bus.publish("jobs", 1)
    assert numbers(second, 1) == {1}


def test_a_reader_that_could_not_begin_is_no_member(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else another process could not read the subscription as long as this one lives."""
    worker = connect()

    def fail(*_args: object) -> str | None:
        raise ConnectionLost("made up")

    with monkeypatch.context() as patched:
        patched.setattr(GroupMember, "claim_alone", fail)
        with pytest.raises(ConnectionLost):
            worker.subscribe("jobs", name="ledger")
    assert bus.parts.session.exists(bus.parts.tree.member("ledger", "jobs", worker.client_id)) is None


def test_a_member_is_a_new_znode_also_if_an_attempt_at_it_failed(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one of before must not be taken for it: it would stand for what nobody reads."""
    worker = connect()
    sub = worker.subscribe("jobs", group="workers", partitions=1)
    path = bus.parts.tree.member("workers", "jobs", worker.client_id)
    before = bus.parts.session.exists(path)
    multi = worker.parts.session.multi
    lost: list[str] = []

    def lose(operations: Sequence[Operation], **options: Any) -> list[Any]:
        if not lost and any(isinstance(each, Create) and each.path == path for each in operations):
            lost.append("not carried out")
            raise ConnectionLost("made up")
        return multi(operations, **options)

    monkeypatch.setattr(worker.parts.session, "multi", lose)
    sub._rota.join()
    after = bus.parts.session.exists(path)
    assert lost
    assert before is not None
    assert after is not None
    assert after.czxid > before.czxid
