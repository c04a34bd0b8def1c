"""Delayed messages when requests are lost, leaders die and ZooKeeper restarts: none early, none lost, none twice."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from zkms_cleaner.delays import DelayedView
from zkms_cleaner.due import Due, Mover

import zkms
from tests.support import delayed_load as load
from tests.support.buses import Connect, Eventually
from tests.support.delayed import OPTIONS, TOPIC, Listener, Sleeper
from zkms.errors import TransactionFailed
from zkms.publish.audience import Members
from zkms.server.server import Server
from zkms.testing import Proxy, expire
from zkms.tree.delayed_names import parse_bucket, parse_delayed
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Check, Create, Delete, Operation

SIDES = ("cut_reply", "cut_request")


@pytest.fixture
def connect_options() -> dict[str, Any]:
    """Sessions that expire soon."""
    return OPTIONS


def cuts(proxy: Proxy, requests: int, op: str | None = None) -> Iterator[str]:
    """Cut each request of an exchange in turn, before the server sees it and after it was carried out."""
    for n, side in itertools.product(range(1, requests + 1), SIDES):
        cut: threading.Event = getattr(proxy, side)(n, op=op)
        yield f"{side}({n})"
        assert cut.wait(30), f"{side}({n}) was never reached"


def waiting(bus: zkms.Bus) -> list[Any]:
    """All frames that wait."""
    buckets = [
        begins for name in bus.parts.session.children(bus.parts.tree.delayed)[0] if (begins := parse_bucket(name))
    ]
    names = [
        (begins, name) for begins in buckets for name in bus.parts.session.children(bus.parts.tree.bucket(begins))[0]
    ]
    return [item for begins, name in names if (item := parse_delayed(begins, name)) is not None]


def test_a_delayed_publish_is_stored_once_whichever_request_is_lost(
    sleeper: Sleeper, connect: Connect, proxy: Proxy
) -> None:
    """A bus's first one claims its producer's number and makes the bucket; each of these steps can be lost."""
    bus = connect(through=proxy)
    before = proxy.requests.total()
    bus.publish(TOPIC, "nothing lost", delay=1000)
    requests = proxy.requests.total() - before
    assert requests >= 4
    expected = 1
    bus = connect(through=proxy)
    for case in cuts(proxy, requests):
        receipt = bus.publish(TOPIC, case, delay=1000 + 20 * expected)
        expected += 1
        assert receipt.delayed, case
        assert len(waiting(bus)) == expected, case
        bus.close()
        bus = connect(through=proxy)


def test_a_move_is_carried_out_once_whichever_request_of_the_leader_is_lost(connect: Connect, proxy: Proxy) -> None:
    """Above all the transaction itself, whose reply may be lost after it was carried out."""
    listener = Listener(connect(), name="all")
    publisher = connect(cleaner=True)
    leader = connect(through=proxy, cleaner=True)
    assert publisher.parts.cleaner is not None
    publisher.parts.cleaner.close()  # so that the other one leads
    assert leader.parts.cleaner is not None
    expected = []
    for case in cuts(proxy, 4, op="multi"):
        expected.append(case)
        publisher.publish(TOPIC, case, delay=0.2).wait(60)
        for n in range(4):
            expected.append(f"{case} {n}")
            publisher.publish(TOPIC, f"{case} {n}", delay=0.0).wait(60)
    assert sorted(listener.got) == sorted(expected)


@pytest.mark.parametrize("how", ["cut off", "restarted"])
def test_messages_survive_a_zookeeper_that_comes_back(
    how: str, connect: Connect, proxy: Proxy, zookeeper: Server
) -> None:
    """The leader cut off for a while, or ZooKeeper itself restarted: what became due meanwhile comes, once."""
    through = proxy if how == "cut off" else None
    leader = connect(through=through, cleaner=True)
    listener = Listener(connect(), name="all")
    receipts = [leader.publish(TOPIC, n, delay=n / 50) for n in range(100)]
    if how == "cut off":
        proxy.refuse()
        proxy.drop()
        time.sleep(1.0)
        proxy.accept()
    else:
        zookeeper.kill(0)
        zookeeper.restart(0)
    for receipt in receipts:
        assert not receipt.wait(60).delayed
    deadline = time.monotonic() + 60
    while len(listener.got) < 100 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sorted(listener.got) == list(range(100))
    arrived = dict(zip(listener.got, listener.at, strict=True))
    assert all(arrived[n] >= (receipt.due or 0) - 0.001 for n, receipt in enumerate(receipts))


def test_a_leader_whose_session_expires_is_followed_by_itself(connect: Connect, eventually: Eventually) -> None:
    """It stands again in its new session, and nothing is moved twice."""
    leader = connect(cleaner=True)
    listener = Listener(connect(), name="all")
    for n in range(60):
        leader.publish(TOPIC, n, delay=1 + n / 30)
        if n == 30:
            expire(leader)
    eventually(lambda: len(listener.got) >= 60, 60)
    assert sorted(listener.got) == list(range(60))


def test_messages_survive_leaders_that_are_killed(zookeeper: Server, zookeeper_root: str) -> None:
    """Two of them, without a goodbye, while messages become due all the time."""
    outcome = load.run(zookeeper.hosts, zookeeper_root, 400, 4.0)
    print(outcome)
    assert (outcome.early, outcome.lost, outcome.twice) == (0, 0, 0)


# -- the mechanisms --------------------------------------------------------------------------------------------------


def test_one_who_does_not_lead_any_more_moves_nothing(sleeper: Sleeper, connect: Connect) -> None:
    """A leader that was away for longer than its session, and does not know."""
    bus = connect()
    sub = connect().subscribe(TOPIC)
    bus.publish(TOPIC, 1, delay=0)
    items = waiting(bus)
    sleeper.give_way()
    with pytest.raises(TransactionFailed) as caught:
        Mover(bus.parts.session, bus.parts.tree).move(sleeper.lead, items)
    assert caught.value.operation.path == sleeper.lead.path
    assert sub.get(timeout=0.3) is None
    assert waiting(bus) == items


def test_two_leaders_at_once_move_a_message_once(sleeper: Sleeper, connect: Connect) -> None:
    """Both have read it before either has moved it: the second one finds nothing to delete, and so stores nothing."""
    bus = connect()
    listener = Listener(connect(), name="all")
    for n in range(50):
        bus.publish(TOPIC, n, delay=0)
    items = sorted(waiting(bus))
    movers = [Mover(each.parts.session, each.parts.tree) for each in (connect(), connect())]
    threads = [threading.Thread(target=mover.move, args=(sleeper.lead, items)) for mover in movers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    bus.publish(TOPIC, "last")
    deadline = time.monotonic() + 60
    while "last" not in listener.got and time.monotonic() < deadline:
        time.sleep(0.01)
    assert listener.got == [*range(50), "last"]


def test_without_the_delete_in_the_transaction_messages_come_twice(
    sleeper: Sleeper, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the guarantee rests on: two moves of the same message are refused only because one deletes it."""
    original = Mover._operations

    def careless(self: Mover, due: Due, snapshot: Members, now: float) -> list[Operation]:
        return [each for each in original(self, due, snapshot, now) if not isinstance(each, Delete)]

    monkeypatch.setattr(Mover, "_operations", careless)
    bus = connect()
    bus.subscribe(TOPIC)
    listener = Listener(connect(), name="all")
    bus.publish(TOPIC, 1, delay=0)
    items = waiting(bus)
    for each in (connect(), connect()):
        Mover(each.parts.session, each.parts.tree).move(sleeper.lead, items)
    bus.publish(TOPIC, "last")
    deadline = time.monotonic() + 60
    while "last" not in listener.got and time.monotonic() < deadline:
        time.sleep(0.01)
    assert listener.got == [1, 1, "last"]


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
def test_who_subscribes_while_a_message_is_moved_gets_it(
    checked: bool, sleeper: Sleeper, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epochs are checked in the same transaction; without that, the newcomer would miss it."""
    bus = connect()
    bus.subscribe(TOPIC, name="before")
    bus.publish(TOPIC, 1, delay=0)
    original = Mover._operations
    newcomers: list[zkms.Consumer] = []

    def interrupted(self: Mover, due: Due, snapshot: Members, now: float) -> list[Operation]:
        operations = original(self, due, snapshot, now)
        if not newcomers:
            newcomers.append(bus.subscribe(TOPIC, name="newcomer"))
        return operations if checked else [each for each in operations if not isinstance(each, Check)]

    monkeypatch.setattr(Mover, "_operations", interrupted)
    Mover(bus.parts.session, bus.parts.tree).move(sleeper.lead, waiting(bus))
    message = newcomers[0].get(timeout=30 if checked else 0.5)
    assert (message is not None) == checked


def test_a_wake_up_that_is_lost_costs_seconds(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its watches the leader finds what is new by looking regularly."""
    monkeypatch.setattr(DelayedView, "_rung", lambda *_: None)
    leader = connect(cleaner=True)
    sub = connect().subscribe(TOPIC)
    for n in range(3):
        leader.publish(TOPIC, n, delay=0)
        message = sub.get(timeout=30)
        assert message is not None
        assert message.data == n


def test_a_bucket_that_is_overdue_is_found(sleeper: Sleeper, connect: Connect, tree: Tree) -> None:
    """Of a time long ago, when nobody led."""
    bus = connect()
    sub = connect().subscribe(TOPIC)
    bus.publish(TOPIC, "now", delay=0)
    item = waiting(bus)[0]
    old = item._replace(bucket=item.bucket - 86_400)
    raw = bus.parts.session.get(item.path(tree))[0]
    bus.parts.session.multi([Create(tree.bucket(old.bucket)), Create(old.path(tree), raw), Delete(item.path(tree))])
    sleeper.give_way()
    connect(cleaner=True)
    message = sub.get(timeout=30)
    assert message is not None
    assert message.data == "now"
