"""True session expiry: everything comes back by itself, and what may have been missed is announced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.buses import Connect, Eventually
from tests.support.listener import Listener
from zkms import Bus, ConnectionLost, Gap
from zkms.deliver.live import Subscription
from zkms.subscribe.live_registration import LiveRegistration
from zkms.testing import expire
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import QueueState, encode
from zkms.zookeeper.operations import Create, Operation
from zkms.zookeeper.session import State

pytestmark = pytest.mark.on_asyncio_too


def renewed(bus: Bus, generation: int = 2) -> bool:
    """Whether the bus has a new session and has registered again."""
    return bus.parts.session.generation >= generation and bus.parts.live_registration._generation >= generation


def heard(listener: Listener) -> list[Any]:
    """Data and gaps in the order they came."""
    return ["gap" if isinstance(event, Gap) else event.data for event in listener.events]


def check_expiry_is_survived_and_announced(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Fail unless old messages, one gap and new messages come in this order."""
    other, listener = connect(), Listener()
    listener.go.clear()
    listener.subscribe(other, "users", prefetch=2)
    for number in range(10):
        bus.publish("users", number)
    eventually(lambda: listener.data == [0], timeout=10)
    expire(other)
    eventually(lambda: renewed(other), timeout=20)
    for number in range(10, 15):
        bus.publish("users", number)
    listener.go.set()
    eventually(lambda: 14 in listener.data, timeout=10)
    assert heard(listener) == [*range(10), "gap", *range(10, 15)]


def test_after_an_expiry_old_messages_come_first_then_one_gap_then_the_new_ones(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """Registered again by itself, the old queue drained, one gap event, later messages arrive."""
    check_expiry_is_survived_and_announced(bus, connect, eventually)


def test_without_the_gap_entry_an_expiry_would_be_silent(
    bus: Bus, connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking the mechanism on purpose: an entry that is acked and not announced fails the check."""
    monkeypatch.setattr(Subscription, "_reach_gap", lambda self, path, _record: self._acks.add(path))
    with pytest.raises(AssertionError):
        check_expiry_is_survived_and_announced(bus, connect, eventually)


def test_client_and_registrations_are_back_under_the_new_session(
    bus: Bus, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """clients/ID and every subscribers/TOPIC/ID, owned by the session that lives now."""
    subs = [bus.subscribe(f"topic {number}") for number in range(5)]
    old = bus.parts.session.client_id[0]
    expire(bus)
    eventually(lambda: renewed(bus), timeout=20)
    new = bus.parts.session.client_id[0]
    assert new != old
    paths = [tree.client(bus.client_id), *(tree.registration(sub.topic, sub.id) for sub in subs)]
    assert {raw.exists(path).ephemeralOwner for path in paths} == {new}
    for sub in subs:
        bus.publish(sub.topic, "x")
        assert sub.get(timeout=5).data == "x"


def test_a_gap_is_announced_also_if_nothing_was_missed(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Nobody can know that, so it is said, without waiting for a message."""
    other, listener = connect(), Listener()
    sub = listener.subscribe(other, "users")
    expire(other)
    eventually(lambda: listener.gaps, timeout=20)
    assert heard(listener) == ["gap"]
    assert listener.gaps[0].subscription == sub.id
    assert "expired" in listener.gaps[0].reason


def test_what_is_published_meanwhile_is_missed_and_announced(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """A publisher that never stops: the subscriber has a prefix, one gap, and everything from some point on."""
    other, listener = connect(), Listener()
    listener.subscribe(other, "users")
    connect().subscribe("users")
    stop = threading.Event()
    published: list[int] = []

    def publish() -> None:
        while not stop.is_set():
            bus.publish("users", len(published))
            published.append(len(published))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        eventually(lambda: len(listener.data) > 20)
        expire(other)
        eventually(lambda: listener.gaps, timeout=20)
        count = len(listener.data)
        eventually(lambda: len(listener.data) > count + 20)
    finally:
        stop.set()
        thread.join(30)
    eventually(lambda: listener.data[-1] == published[-1])
    events = heard(listener)
    place = events.index("gap")
    before, after = events[:place], events[place + 1 :]
    assert before == list(range(len(before)))
    assert after == list(range(after[0], published[-1] + 1))
    assert len(listener.gaps) == 1


def test_several_expiries_in_a_row_are_survived(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """A gap for each."""
    other, listener = connect(), Listener()
    listener.subscribe(other, "users")
    for generation in range(2, 5):
        expire(other)
        eventually(lambda generation=generation: renewed(other, generation), timeout=20)
        bus.publish("users", generation)
    eventually(lambda: listener.data == [2, 3, 4])
    assert heard(listener) == ["gap", 2, "gap", 3, "gap", 4]


def test_a_publishers_numbers_go_on_after_its_session_expired(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """Every message once, numbered without a break, also those published while the session was lost."""
    sub = connect().subscribe("users")
    publisher = connect()
    for number in range(5):
        publisher.publish("users", number)
    expire(publisher)
    for number in range(5, 10):
        publisher.publish("users", number, timeout=20)
    messages = [sub.get(timeout=5) for _ in range(10)]
    assert [message.data for message in messages] == list(range(10))
    assert len({message.id for message in messages}) == 10
    assert [message.seq for message in messages] == sorted(message.seq for message in messages)
    assert sub.get(timeout=0.2) is None


def test_publishing_while_the_session_expires_stores_everything_once(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """In flight or not: no message is lost or doubled, and order is kept."""
    listener = Listener()
    listener.subscribe(connect(), "users")
    publisher = connect()
    stop = threading.Event()
    published: list[int] = []

    def publish() -> None:
        while not stop.is_set():
            start = len(published)
            publisher.publish_many("users", range(start, start + 300), timeout=30)
            published.extend(range(start, start + 300))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        for _ in range(2):
            count = len(published)
            eventually(lambda count=count: len(published) > count + 600)
            expire(publisher)
    finally:
        stop.set()
        thread.join(60)
    eventually(lambda: len(listener.data) >= len(published))
    assert listener.data == published


def test_acks_in_hand_survive_an_expiry(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Messages taken before it and acked after it read as acked: the queue is the same one."""
    other = connect()
    sub = other.subscribe("users", ack="manual")
    receipts = [bus.publish("users", number) for number in range(3)]
    messages = [sub.get(timeout=5) for _ in range(3)]
    expire(other)
    eventually(lambda: renewed(other), timeout=20)
    for message in messages:
        message.ack()
    assert [receipt.wait(timeout=5).acked for receipt in receipts] == [(sub.id,)] * 3


def test_a_condemned_queue_is_not_used_again(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """The cleaner was quicker: a new queue, with the gap before anything else, and the receipts say what happened."""
    other, listener = connect(), Listener()
    listener.go.clear()
    sub = listener.subscribe(other, "users", prefetch=1)
    receipts = [bus.publish("users", number) for number in range(5)]
    eventually(lambda: listener.data)
    condemned = sub.id
    raw.set(tree.queue(condemned, "users"), encode(QueueState(other.client_id, gone="purged: its subscriber is gone")))
    expire(other)
    eventually(lambda: renewed(other), timeout=20)
    assert sub.id != condemned
    assert [info.subscription for info in bus.subscriptions("users")] == [sub.id]
    bus.publish("users", "later")
    listener.go.set()
    eventually(lambda: "later" in listener.data)
    events = heard(listener)
    place = events.index("gap")
    assert events[:place] == list(range(place))
    assert events[place:] == ["gap", "later"]
    raw.delete(tree.queue(condemned, "users"), recursive=True)
    assert receipts[-1].wait(timeout=5).acked == ()
    assert receipts[-1].gone[condemned]


def test_a_purged_queue_is_replaced(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """The cleaner was quicker still: the old queue does not even exist."""
    other, listener = connect(), Listener()
    sub = listener.subscribe(other, "users")
    old = sub.id
    with other.parts.live_registration._lock:  # it cannot register again before we are through
        expire(other)
        eventually(lambda: raw.exists(tree.registration("users", old)) is None)
        raw.delete(tree.subscription(old), recursive=True)
    eventually(lambda: listener.gaps, timeout=20)
    eventually(lambda: len(bus.subscriptions("users")) == 1)
    bus.publish("users", "later")
    eventually(lambda: listener.data == ["later"])
    assert sub.id != old
    assert len(listener.gaps) == 1


def test_a_queue_deleted_by_hand_is_replaced_with_a_gap(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """While the session lives: the subscriber notices by itself, and publishers find the new one."""
    other, listener = connect(), Listener()
    sub = listener.subscribe(other, "users")
    witness = connect().subscribe("users")
    bus.publish("users", 1)
    eventually(lambda: listener.data == [1])
    old = sub.id
    raw.delete(tree.queue(old, "users"), recursive=True)
    eventually(lambda: listener.gaps, timeout=20)
    bus.publish("users", 2)
    eventually(lambda: listener.data == [1, 2])
    assert heard(listener) == [1, "gap", 2]
    assert {info.subscription for info in bus.subscriptions("users")} == {sub.id, witness.id}
    assert [witness.get(timeout=5).data for _ in range(2)] == [1, 2]
    sub.unsubscribe()
    assert [info.subscription for info in bus.queues()] == [witness.id]


def test_a_queue_deleted_by_hand_in_the_middle_of_a_prefetch(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """What was read is delivered, the rest is a gap, later messages arrive, late acks harm nothing."""
    other, listener = connect(), Listener()
    listener.go.clear()
    sub = listener.subscribe(other, "users", prefetch=5)
    for number in range(30):
        bus.publish("users", number)
    eventually(lambda: listener.data)
    raw.delete(tree.queue(sub.id, "users"), recursive=True)
    listener.go.set()
    eventually(lambda: [s.subscription for s in bus.subscriptions("users")] not in ([], [other.client_id]))
    for number in range(100, 105):
        bus.publish("users", number)
    eventually(lambda: 104 in listener.data)
    old = [data for data in listener.data if data < 100]
    assert old == list(range(len(old)))
    assert listener.data[len(old) :] == list(range(100, 105))
    assert listener.gaps


def test_entries_removed_before_they_were_read_are_a_gap(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually
) -> None:
    """ZooKeeper counts what was created, so even the last entry cannot vanish in silence."""
    other, listener = connect(), Listener()
    listener.go.clear()
    sub = listener.subscribe(other, "users", prefetch=1)
    data = [str(number).zfill(1000) for number in range(6)]  # too large for a name, so that they have to be read
    for each in data:
        bus.publish("users", each)
    eventually(lambda: listener.data)
    queue = tree.queue(sub.id, "users")
    raw.delete(f"{queue}/{max(map(parse_entry, raw.get_children(queue))).name}")
    listener.go.set()
    eventually(lambda: listener.gaps)
    eventually(lambda: len(listener.data) == 5)
    assert listener.data == data[:5]


def test_a_lost_queue_is_noticed_only_because_readers_look(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking the repair on purpose: nothing would come any more, and nobody would say so."""
    monkeypatch.setattr(LiveRegistration, "repair", lambda *_args: None)
    other, listener = connect(), Listener()
    sub: Subscription = listener.subscribe(other, "users")
    raw.delete(tree.queue(sub.id, "users"), recursive=True)
    bus.publish("users", 1)
    with pytest.raises(AssertionError):
        eventually(lambda: listener.events, timeout=1)


def test_a_subscription_whose_registration_went_with_its_session_begins_with_the_next(
    bus: Bus, connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reply was lost, and then the session: what its queue got until then would come with a hole behind it."""
    connect().subscribe("users")
    other, listener = connect(), Listener()
    multi = other.parts.session.multi
    made: list[str] = []

    def lose_reply_and_session(operations: Sequence[Operation], **options: Any) -> list[Any]:
        done = multi(operations, **options)
        if not made and any(isinstance(each, Create) and each.ephemeral for each in operations):
            made.append("registered")
            bus.publish("users", "of the first session")
            expire(other)
            eventually(
                lambda: other.parts.session.generation == 2 and other.parts.session.state is State.CONNECTED, timeout=20
            )
            bus.publish("users", "of no session")
            raise ConnectionLost("made up")
        return done

    monkeypatch.setattr(other.parts.session, "multi", lose_reply_and_session)
    listener.subscribe(other, "users")
    assert made
    bus.publish("users", "of the second session")
    eventually(lambda: "of the second session" in listener.data, timeout=20)
    assert [each for each in heard(listener) if each != "gap"] == ["of the second session"]


@pytest.mark.of_threads
def test_a_registration_that_is_carried_out_between_two_looks_is_the_subscriptions(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reply was lost, and the server that is asked hears of it late: it must not be left for another id."""
    witness = connect().subscribe("users")
    other = connect()
    multi, exists, get = other.parts.session.multi, other.parts.session.exists, other.parts.session.get
    late: list[Sequence[Operation]] = []
    registrations: list[int] = []

    def lose(operations: Sequence[Operation], **options: Any) -> list[Any]:
        if any(isinstance(each, Create) and each.ephemeral for each in operations):
            registrations.append(len(operations))
            if len(registrations) == 1:
                late.append(operations)
                raise ConnectionLost("made up")
        return multi(operations, **options)

    def then_arrive(look: Callable[..., Any]) -> Callable[..., Any]:
        def looked(path: str, *args: Any, **options: Any) -> Any:
            try:
                return look(path, *args, **options)
            finally:
                if late and "users" in path:
                    multi(late.pop())

        return looked

    monkeypatch.setattr(other.parts.session, "multi", lose)
    monkeypatch.setattr(other.parts.session, "exists", then_arrive(exists))
    monkeypatch.setattr(other.parts.session, "get", then_arrive(get))
    sub = other.subscribe("users")
    assert registrations
    assert not late
    assert {info.subscription for info in bus.subscriptions("users")} == {witness.id, sub.id}
    bus.publish("users", 1)
    assert sub.get(timeout=5).data == 1
