"""Bounded queues: a slow subscriber's queue collapses into one gap event, and harms nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.buses import Connect, Eventually
from tests.support.listener import Listener
from zkms import BadVersion, Bus, ConnectionLost, Gap, Message, Subscription, TransactionFailed
from zkms.deliver.live import Subscription as SubscriptionClass
from zkms.publish.limits import Limits
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Create, Delete, Operation

pytestmark = pytest.mark.on_asyncio_too

LIMIT = 20


def waiting(raw: KazooClient, tree: Tree, sub: Subscription) -> int:
    """How many messages are in a subscription's queue."""
    return sum(parse_entry(name).messages for name in raw.get_children(tree.queue(sub.id, sub.topic)))


def place_of_the_gap(listener: Listener) -> int:
    """How many messages came before the one gap."""
    (gap,) = listener.gaps
    return [event for event in listener.events if isinstance(event, Message | Gap)].index(gap)


def publish_singly(bus: Bus, data: list[Any]) -> None:
    """One by one."""
    for value in data:
        bus.publish("users", value)


def publish_packed(bus: Bus, data: list[Any]) -> None:
    """The fast way."""
    bus.publish_many("users", data)


@pytest.mark.parametrize("publish", [publish_singly, publish_packed])
def test_a_slow_subscribers_queue_never_grows_past_its_limit(
    bus: Bus,
    connect: Connect,
    raw: KazooClient,
    tree: Tree,
    eventually: Eventually,
    publish: Callable[[Bus, list[Any]], None],
) -> None:
    """With one publisher, exactly; it collapses into one gap event at its place, and others miss nothing."""
    slow, quick = Listener(), Listener()
    slow.go.clear()
    sub = slow.subscribe(connect(), "users", limit=LIMIT)
    quick.subscribe(connect(), "users")
    publish(bus, list(range(100)))
    assert waiting(raw, tree, sub) <= LIMIT
    assert [(info.subscription, info.full) for info in bus.subscriptions("users")].count((sub.id, True)) == 1
    eventually(lambda: len(quick.data) == 100)
    assert quick.data == list(range(100))
    assert quick.gaps == []

    slow.go.set()
    eventually(lambda: slow.gaps)
    before = place_of_the_gap(slow)
    assert 0 < before <= LIMIT
    publish(bus, [f"later {number}" for number in range(5)])
    eventually(lambda: slow.data[-1] == "later 4")
    assert slow.data == [*range(before), *(f"later {number}" for number in range(5))]
    assert len(slow.gaps) == 1
    assert str(LIMIT) in slow.gaps[0].reason
    assert (slow.gaps[0].topic, slow.gaps[0].subscription) == ("users", sub.id)
    assert not any(info.full for info in bus.subscriptions("users"))


def test_a_queue_may_be_filled_to_its_limit_without_a_gap(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """The limit is a number of messages that may wait, not one less."""
    listener = Listener()
    listener.go.clear()
    listener.subscribe(connect(), "users", limit=LIMIT)
    publish_singly(bus, list(range(LIMIT)))
    listener.go.set()
    eventually(lambda: len(listener.data) == LIMIT)
    assert listener.gaps == []


def test_a_limit_of_one_works(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """The smallest limit there is: each message either arrives or is in a gap."""
    listener = Listener()
    listener.subscribe(connect(), "users", limit=1)
    for number in range(10):
        bus.publish("users", number).wait(timeout=5)
    eventually(lambda: listener.data)
    assert listener.data == sorted(set(listener.data))
    listener.go.clear()
    publish_packed(bus, list(range(10, 40)))
    listener.go.set()
    eventually(lambda: listener.gaps)


def test_a_receipt_names_the_subscription_that_was_skipped(bus: Bus, connect: Connect) -> None:
    """It is gone for this message, with the reason, and not pending for ever."""
    sub = connect().subscribe("users", limit=2, ack="manual")
    quick = connect().subscribe("users")
    receipts = [bus.publish("users", number) for number in range(4)]
    assert [quick.get(timeout=5).data for _ in range(4)] == [0, 1, 2, 3]
    for receipt in receipts[:2]:
        receipt.wait(timeout=0.5)
        assert (receipt.acked, receipt.pending, receipt.gone) == ((quick.id,), (sub.id,), {})
    for receipt in receipts[2:]:
        receipt.wait(timeout=5)
        assert (receipt.acked, receipt.pending) == ((quick.id,), ())
        assert "full" in receipt.gone[sub.id]


def test_a_message_to_full_queues_only_is_stored_nowhere_and_says_so(bus: Bus, connect: Connect) -> None:
    """Not NoSubscribers: somebody is there, and will hear of a gap."""
    sub = connect().subscribe("users", limit=1, ack="manual")
    bus.publish("users", 1)
    receipt = bus.publish("users", 2)
    assert (receipt.acked, receipt.pending, set(receipt.gone)) == ((), (), {sub.id})


def test_several_publishers_exceed_a_limit_by_their_budgets_at_most(
    connect: Connect, raw: KazooClient, tree: Tree
) -> None:
    """Each may add a quarter of the room that it saw; then the queue is flagged, and nobody adds to it."""
    limit, count = 40, 4
    sub = connect().subscribe("users", limit=limit, ack="manual")
    publishers = [connect() for _ in range(count)]

    def publish(bus: Bus) -> None:
        publish_singly(bus, list(range(60)))

    threads = [threading.Thread(target=publish, args=[bus]) for bus in publishers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert waiting(raw, tree, sub) <= limit + count * limit // 4
    assert publishers[0].subscriptions("users")[0].full


def test_a_subscriber_that_is_slow_again_hears_of_a_gap_again(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """Once for each time, each in its place."""
    listener = Listener()
    listener.subscribe(connect(), "users", limit=5)
    for turn in range(3):
        listener.go.clear()
        publish_singly(bus, [[turn, number] for number in range(12)])
        listener.go.set()
        eventually(lambda turn=turn: len(listener.gaps) == turn + 1)
        bus.publish("users", [turn, "after"])
        eventually(lambda turn=turn: listener.data[-1] == [turn, "after"])
    kinds = ["gap" if isinstance(event, Gap) else event.data for event in listener.events]
    expected = []
    for turn in range(3):
        expected += [[turn, number] for number in range(5)] + ["gap", [turn, "after"]]
    assert kinds == expected


def test_a_publisher_that_was_held_up_flags_no_queue_that_was_drained_meanwhile(
    bus: Bus, connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw a full queue; another one flagged it, and its owner was told of that gap. There is no second one."""
    listener = Listener()
    listener.go.clear()
    listener.subscribe(connect(), "users", limit=LIMIT)
    late = connect()
    publish_singly(bus, list(range(LIMIT)))
    looked, go_on = threading.Event(), threading.Event()
    flag = Limits._flag

    def held_up(self: Limits, *args: Any) -> None:
        if not looked.is_set():
            looked.set()
            assert go_on.wait(30)
        flag(self, *args)

    monkeypatch.setattr(Limits, "_flag", held_up)
    publishing = threading.Thread(target=late.publish, args=("users", "late"))
    publishing.start()
    assert looked.wait(30)
    bus.publish("users", "skipped")
    listener.go.set()
    eventually(lambda: listener.gaps)
    eventually(lambda: not any(info.full for info in bus.subscriptions("users")))
    go_on.set()
    publishing.join(30)
    bus.publish("users", "after")
    eventually(lambda: listener.data[-1] == "after")
    assert listener.data == [*range(LIMIT), "late", "after"]
    assert len(listener.gaps) == 1


@pytest.mark.of_threads
def test_a_flag_that_was_put_up_since_the_last_one_was_taken_down_stays(
    bus: Bus,
    connect: Connect,
    raw: KazooClient,
    tree: Tree,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer to the first taking down was lost. For the second flag its reader comes to a gap of its own."""
    reader, listener = connect(), Listener()
    late: list[str] = []
    sub: list[Subscription] = []
    multi = reader.parts.session.multi

    def lose_the_first_answer(operations: Sequence[Operation], **options: Any) -> list[Any]:
        done = multi(operations, **options)
        if not late and any(isinstance(each, Delete) and each.path.endswith("!") for each in operations):
            late.append("flagged again")
            eventually(lambda: waiting(raw, tree, sub[0]) == 0)
            while not bus.subscriptions("users")[0].full:
                bus.publish("users", "second")
            raise ConnectionLost("made up")
        return done

    def on_gap(gap: Gap) -> None:
        listener.events.append(gap)
        bus.publish("users", "skipped")

    monkeypatch.setattr(reader.parts.session, "multi", lose_the_first_answer)
    listener.go.clear()
    sub.append(reader.subscribe("users", listener.hear, limit=3, on_gap=on_gap))
    publish_singly(bus, ["first"] * 4)
    listener.go.set()
    eventually(lambda: len(listener.gaps) == 2)
    eventually(lambda: not bus.subscriptions("users")[0].full)
    eventually(lambda: bus.publish("users", "last") and listener.data[-1] == "last")
    heard = ["gap" if isinstance(event, Gap) else event.data for event in listener.events]
    told = [*["first"] * 3, "gap", *["second"] * 3, "gap", "last"]
    assert [each for each in heard if each != "skipped"][: len(told)] == told


@pytest.mark.of_threads
def test_queues_that_are_full_at_the_same_time_are_flagged_one_after_the_other(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In as many transactions as there are: each knows of the epoch that the one before it has made."""
    for _ in range(8):
        connect().subscribe("users", limit=3)
    tried: list[str] = []
    flag = Limits._flag

    def count(self: Limits, *args: Any) -> bool:
        tried.append("")
        return flag(self, *args)

    monkeypatch.setattr(Limits, "_flag", count)
    publish_singly(bus, list(range(4)))
    assert all(info.full for info in bus.subscriptions("users"))
    assert len(tried) == 8


def test_a_pulling_subscriber_is_limited_too(bus: Bus, connect: Connect) -> None:
    """The gap is announced between the last old and the first new message."""
    listener = Listener()
    sub = listener.pull(connect(), "users", limit=3)
    publish_singly(bus, list(range(10)))
    assert [sub.get(timeout=5).data for _ in range(3)] == [0, 1, 2]
    assert listener.gaps == []
    assert sub.get(timeout=0.3) is None
    assert len(listener.gaps) == 1
    bus.publish("users", "later")
    assert sub.get(timeout=5).data == "later"


@pytest.mark.parametrize("removed", ["gap", "all", "queue"])
def test_a_flagged_queue_emptied_by_hand_is_used_again(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually, removed: str
) -> None:
    """However the entry that says "gap" got lost, the flag does not stay for ever, and the gap is announced."""
    listener = Listener()
    listener.go.clear()
    sub = listener.subscribe(connect(), "users", limit=3, prefetch=1)
    publish_singly(bus, list(range(10)))
    assert bus.subscriptions("users")[0].full
    queue = tree.queue(sub.id, "users")
    for name in raw.get_children(queue):
        if removed != "gap" or parse_entry(name).gap:
            raw.delete(f"{queue}/{name}")
    if removed == "queue":
        raw.delete(queue)
    listener.go.set()
    eventually(lambda: listener.gaps)
    eventually(
        lambda: not any(info.full for info in bus.subscriptions("users") if info.client == sub.registration.client)
    )
    bus.publish("users", "later")
    eventually(lambda: listener.data[-1] == "later")


def test_a_message_that_finds_only_full_queues_does_not_overtake_those_before_it(
    connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be missing behind the gap, between two messages of its publisher that arrive."""
    listener = Listener()
    listener.go.clear()
    listener.subscribe(connect(), "users", limit=4)
    publisher, other = connect(), connect()
    publisher.publish("users", 0)
    held: list[tuple[Future[Any], Sequence[Operation]]] = []
    send = publisher.parts.session.multi_async

    def hold_the_first_publish(operations: Sequence[Operation]) -> Future[Any]:
        if held or not any(isinstance(operation, Create) for operation in operations):
            return send(operations)
        held.append((Future(), operations))
        return held[0][0]

    monkeypatch.setattr(publisher.parts.session, "multi_async", hold_the_first_publish)
    threads = [threading.Thread(target=publisher.publish, args=["users", data]) for data in ("one", "two")]
    threads[0].start()
    eventually(lambda: held)
    publish_singly(other, list(range(1, 8)))
    assert other.subscriptions("users")[0].full
    threads[1].start()
    eventually(lambda: len(publisher.parts.pipeline._outstanding) == 2 or not threads[1].is_alive())
    listener.go.set()
    eventually(lambda: listener.gaps)
    future, operations = held[0]
    future.set_exception(TransactionFailed(0, BadVersion("a flag moved the epoch"), operations[0]))
    for thread in threads:
        thread.join(20)
    eventually(lambda: "one" in listener.data)
    other.publish("users", "three")
    eventually(lambda: "three" in listener.data)
    assert listener.data == [0, 1, 2, 3, "one", "two", "three"]
    assert place_of_the_gap(listener) == 4


def check_a_miss_is_announced(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Fail unless a subscriber that missed messages heard of a gap before the first message after them."""
    listener = Listener()
    listener.go.clear()
    listener.subscribe(connect(), "users", limit=4)
    publish_singly(bus, list(range(10)))
    listener.go.set()
    eventually(lambda: not any(info.full for info in bus.subscriptions("users")), timeout=3)
    bus.publish("users", "end")
    eventually(lambda: listener.data[-1] == "end", timeout=3)
    assert listener.data == [0, 1, 2, 3, "end"]
    assert len(listener.gaps) == 1
    assert place_of_the_gap(listener) == 4


def test_a_miss_is_announced(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """The guarantee by itself."""
    check_a_miss_is_announced(bus, connect, eventually)


def test_without_the_gap_event_a_miss_would_be_silent(
    bus: Bus, connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking the mechanism on purpose: the check fails."""
    monkeypatch.setattr(SubscriptionClass, "_announce", lambda *_args: None)
    with pytest.raises(AssertionError):
        check_a_miss_is_announced(bus, connect, eventually)


def check_a_queue_stays_within_its_limit(bus: Bus, connect: Connect, raw: KazooClient, tree: Tree) -> None:
    """Fail if one publisher overfills a queue."""
    sub = connect().subscribe("users", limit=LIMIT, ack="manual")
    publish_singly(bus, list(range(LIMIT * 2)))
    assert waiting(raw, tree, sub) <= LIMIT


def test_without_the_look_at_its_length_a_queue_would_grow_past_its_limit(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With it, it does not; without it, it does."""
    with monkeypatch.context() as patch:
        patch.setattr(Limits, "admit", lambda *_args: True)
        with pytest.raises(AssertionError):
            check_a_queue_stays_within_its_limit(bus, connect, raw, tree)
    connect().publish("users", 1)  # the queue is over its limit, and is flagged by whoever looks
    assert bus.subscriptions("users")[0].full


def test_with_the_look_it_does_not(bus: Bus, connect: Connect, raw: KazooClient, tree: Tree) -> None:
    """The same check, with nothing broken."""
    check_a_queue_stays_within_its_limit(bus, connect, raw, tree)
