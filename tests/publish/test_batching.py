"""Many threads that publish at once share transactions, and each gets its own receipt."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from zkms import InvalidMessage, NoSubscribers
from zkms.message.frame import Packed
from zkms.publish.batching import LONGEST_WAIT, MAX_BYTES, Batch, Batching, GroupCommit
from zkms.publish.options import Kind
from zkms.testing import Proxy
from zkms.tree.entry import parse_entry


def test_threads_share_transactions_and_every_message_arrives_once(bus, connect, raw, tree) -> None:
    """Far fewer entries than messages; each thread's in order."""
    sub = connect().subscribe("users", ack="manual")

    def publish(thread: int) -> list[Any]:
        return [bus.publish("users", (thread, number)) for number in range(50)]

    with ThreadPoolExecutor(32) as pool:
        receipts = [receipt for some in pool.map(publish, range(32)) for receipt in some]
    names = raw.get_children(tree.queue(sub.id, "users"))
    assert sum(parse_entry(name).messages for name in names) == 1600
    assert len(names) < 1200
    messages = []
    while len(messages) < 1600:
        messages += sub.fetch(1600, timeout=5)
    for thread in range(32):
        assert [n for t, n in (m.data for m in messages) if t == thread] == list(range(50))
    assert {receipt.id for receipt in receipts} == {message.id for message in messages}
    assert len({receipt.id for receipt in receipts}) == 1600
    some = next(receipt for receipt in receipts if receipt.count > 1)
    assert some.wait(timeout=0.1).pending == (sub.id,)
    for message in messages:
        message.ack()
    assert all(receipt.wait(timeout=5).acked == (sub.id,) for receipt in receipts)


def test_one_publish_on_an_idle_bus_travels_alone(bus, connect, raw, tree) -> None:
    """And at once: nothing is gathered for it."""
    sub = connect().subscribe("users", ack="manual")
    for number in range(5):
        bus.publish("users", number)
    assert [parse_entry(name).messages for name in raw.get_children(tree.queue(sub.id, "users"))] == [1] * 5


def test_one_publish_after_a_burst_waits_for_nobody(bus, connect, monkeypatch) -> None:
    """Those who shared the last transaction have not come back within a moment: they are not waited for."""
    sub = connect().subscribe("users")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: bus.publish("users", number), range(200)))
    got = 0
    while got < 200:
        got += len(sub.fetch(200, timeout=5))
    assert sub.get(timeout=LONGEST_WAIT) is None
    gathered: list[Batch] = []
    monkeypatch.setattr(Batching, "_gather", lambda _self, batch, *_: gathered.append(batch))
    bus.parts.publisher._batching._commit._crowd = 16  # as after the burst, whatever its last transaction carried
    bus.publish("users", "alone")
    assert gathered == []
    assert sub.get(timeout=5).data == "alone"


def test_a_bad_message_fails_alone(bus, connect) -> None:
    """It is refused before it could join the others."""
    sub = connect().subscribe("users")
    outcomes: list[str] = []

    def publish(number: int) -> None:
        try:
            bus.publish("users", object() if number % 5 == 0 else number)
            outcomes.append("stored")
        except InvalidMessage:
            outcomes.append("refused")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(publish, range(200)))
    assert (outcomes.count("stored"), outcomes.count("refused")) == (160, 40)
    got = []
    while len(got) < 160:
        got += [message.data for message in sub.fetch(200, timeout=5)]
    assert sorted(got) == [number for number in range(200) if number % 5]


def test_everybody_hears_that_nobody_subscribes(bus) -> None:
    """Each of those who shared a transaction."""
    outcomes: list[type] = []

    def publish(_: int) -> None:
        with pytest.raises(NoSubscribers):
            bus.publish("nobody", 1)
        outcomes.append(NoSubscribers)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(publish, range(64)))
    assert len(outcomes) == 64


def test_options_are_not_mixed(bus, connect) -> None:
    """to_self=False and to_self=True do not travel together."""
    mine: list[Any] = []
    theirs: list[Any] = []
    done = threading.Semaphore(0)

    def take(got: list[Any]) -> Any:
        def handler(message: Any) -> None:
            got.append(message.data)
            done.release()

        return handler

    bus.subscribe("users", take(mine))
    connect().subscribe("users", take(theirs))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: bus.publish("users", n, to_self=n % 2 == 0), range(200)))
    for _ in range(300):
        assert done.acquire(timeout=10)
    assert sorted(mine) == list(range(0, 200, 2))
    assert sorted(theirs) == list(range(200))


def test_a_publish_does_not_wait_for_a_streams_transactions(connect, zookeeper, eventually) -> None:
    """It is sent behind them, on the same connection; only transactions of its own kind are worth waiting for."""
    sub = connect().subscribe("users")
    with Proxy(zookeeper.hosts) as proxy:
        bus = connect(hosts=proxy.hosts, session_timeout=30.0)
        bus.publish("users", "first")
        stream = bus.publisher("users", linger=0.0)
        proxy.stop_reading()
        for number in range(4):
            stream.send(number)
            eventually(lambda sent=number: len(bus.parts.pipeline._outstanding) == sent + 1)
        with ThreadPoolExecutor(1) as pool:
            plain = pool.submit(bus.publish, "users", "plain")
            eventually(lambda: len(bus.parts.pipeline._outstanding) == 5)
            proxy.heal()
            plain.result(60)
        stream.close()
        assert [sub.get(timeout=20).data for _ in range(6)] == ["first", 0, 1, 2, 3, "plain"]
        bus.close()


def add(commit: GroupCommit[Batch], kind: Kind, now: float, *, size: int = 1, most: int = 256) -> Batch:
    """Publish a message of so many bytes at a moment."""
    return commit.add(kind, Packed(b"", size), now + 10, now, most)


def test_two_transactions_are_under_way_and_the_rest_is_gathered_by_kind() -> None:
    """Whoever may go goes at once; the others go when one was answered."""
    commit, users, orders = GroupCommit(Batch), Kind("users"), Kind("orders")
    for moment in range(2):
        batch = add(commit, users, moment)
        assert commit.wait(batch, moment) == 0
        commit.start(batch, moment)
    gathered = [add(commit, kind, 2) for kind in (users, orders, users)]
    assert gathered[0] is gathered[2] is not gathered[1]
    assert [commit.wait(each, 2) for each in gathered] == [math.inf] * 3
    commit.ended()
    assert commit.wait(gathered[0], 2) == 0
    assert [len(each.packed) for each in commit.waiting] == [2, 1]


def test_a_batch_takes_what_fits_and_another_one_begins() -> None:
    """By messages, and by bytes; a batch that is sent takes nothing more."""
    commit, kind = GroupCommit(Batch), Kind("users")
    first = add(commit, kind, 0, most=2)
    assert add(commit, kind, 0, most=2) is first
    second = add(commit, kind, 0, most=2)
    assert second is not first
    assert add(commit, kind, 0, size=MAX_BYTES) is not second
    commit.start(third := add(commit, kind, 0), 0)
    assert add(commit, kind, 0) is not third


def test_those_who_were_answered_together_are_waited_for_but_not_for_long() -> None:
    """For a quarter of what their transaction took, or until as many have come."""
    commit, kind = GroupCommit(Batch), Kind("users")
    batch = add(commit, kind, 0)
    add(commit, kind, 0)
    commit.start(batch, 0)
    commit.answered(batch, 0.1)
    batch = add(commit, kind, 0.11)
    assert commit.wait(batch, 0.11) == pytest.approx(0.025)
    assert commit.wait(batch, 0.14) == 0
    add(commit, kind, 0.12)
    assert commit.wait(batch, 0.12) == 0
    commit.start(batch, 0.12)
    commit.answered(batch, 0.2)
    assert commit.wait(add(commit, kind, 5), 5) == 0  # nobody has come back
