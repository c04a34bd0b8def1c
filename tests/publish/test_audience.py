"""Who gets a message: everybody whose subscribe() returned before publish() was called, without a gap."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.support.buses import Connect, Eventually
from tests.support.listener import Listener
from zkms import Bus, ConnectionLost, NoSubscribers
from zkms.publish.audience import Audience, Members
from zkms.publish.pipeline import Pipeline
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Check


class Stream:
    """A publisher that never pauses, and knows which publish() it has begun."""

    def __init__(self, bus: Bus) -> None:
        self.begun = -1
        self.ended = -1
        self._bus = bus
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.begun += 1
            self._bus.publish("users", self.begun)
            self.ended = self.begun

    def stop(self) -> None:
        """Finish the publish under way."""
        self._stop.set()
        self._thread.join(60)


@pytest.fixture
def stream(bus: Bus, connect: Connect) -> Iterator[Stream]:
    """Running, with one subscriber to publish to."""
    connect().subscribe("users")
    running = Stream(bus)
    yield running
    running.stop()


def test_nothing_is_missed_between_subscribing_and_the_first_message(
    stream: Stream, connect: Connect, eventually: Eventually
) -> None:
    """Ten subscribe while a publisher publishes without pause: each gets everything from then on, once, in order."""
    listeners = [Listener() for _ in range(10)]
    latest_first = []
    for listener in listeners:
        bus = connect()
        listener.subscribe(bus, "users")
        latest_first.append(stream.begun + 1)  # the first publish() that begins after subscribe() returned
    goal = stream.begun + 30
    eventually(lambda: stream.ended > goal)
    stream.stop()
    eventually(lambda: all(listener.data and listener.data[-1] == stream.ended for listener in listeners))
    for listener, first in zip(listeners, latest_first, strict=True):
        assert listener.data[0] <= first
        assert listener.data == list(range(listener.data[0], stream.ended + 1))
        assert listener.gaps == []


def test_nothing_is_missed_when_many_subscribe_at_once(
    stream: Stream, connect: Connect, eventually: Eventually
) -> None:
    """From several threads, with subscribers leaving as well: those who stay miss nothing."""
    staying = [(connect(), Listener()) for _ in range(6)]
    leaving = [connect() for _ in range(2)]
    latest_first: dict[int, int] = {}
    stop = threading.Event()

    def join(number: int) -> None:
        bus, listener = staying[number]
        listener.subscribe(bus, "users")
        latest_first[number] = stream.begun + 1

    def churn(bus: Bus) -> None:
        while not stop.is_set():
            bus.subscribe("users").unsubscribe()

    threads = [threading.Thread(target=join, args=[number]) for number in range(6)]
    churners = [threading.Thread(target=churn, args=[bus]) for bus in leaving]
    for thread in (*churners, *threads):
        thread.start()
    for thread in threads:
        thread.join(60)
    stop.set()
    for thread in churners:
        thread.join(60)
    stream.stop()
    eventually(lambda: all(listener.data and listener.data[-1] == stream.ended for _, listener in staying))
    for number, (_, listener) in enumerate(staying):
        assert listener.data[0] <= latest_first[number]
        assert listener.data == list(range(listener.data[0], stream.ended + 1))


def remember(bus: Bus) -> Members:
    """What the publisher knows of the topic now."""
    return bus.parts.pipeline._membership.get("users")


def make_the_watch_late(bus: Bus, known: Members) -> None:
    """The publisher has not heard yet that somebody came: it still has what it knew, and believes it."""
    known.stale = False
    bus.parts.pipeline._membership._known["users"] = known


def check_a_newcomer_gets_the_next_message(bus: Bus, connect: Connect) -> None:
    """Fail if a publisher whose watch is late leaves out a subscriber whose subscribe() has returned."""
    first = connect().subscribe("users")
    bus.publish("users", 0)
    known = remember(bus)
    newcomer = connect().subscribe("users")
    make_the_watch_late(bus, known)
    receipt = bus.publish("users", 1)
    assert [first.get(timeout=5).data for _ in range(2)] == [0, 1]
    message = newcomer.get(timeout=1)
    assert message is not None
    assert message.data == 1
    assert set(receipt.wait(timeout=5).acked) == {first.id, newcomer.id}


def test_a_late_watch_does_not_leave_a_newcomer_out(bus: Bus, connect: Connect) -> None:
    """The epoch is checked in the transaction itself."""
    check_a_newcomer_gets_the_next_message(bus, connect)


def test_without_the_epoch_check_a_newcomer_would_be_left_out(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking the mechanism on purpose: with a check that always holds, the check above fails."""
    operations = Pipeline._operations

    def unchecked(self: Pipeline, *args: object) -> list[object]:
        first, *rest = operations(self, *args)
        assert isinstance(first, Check)
        return [Check(first.path, -1), *rest]

    monkeypatch.setattr(Pipeline, "_operations", unchecked)
    with pytest.raises(AssertionError):
        check_a_newcomer_gets_the_next_message(bus, connect)


def test_a_late_watch_does_not_leave_a_new_pattern_out(bus: Bus, connect: Connect) -> None:
    """The version of the list of patterns is checked in the transaction itself, as the topic's epoch is."""
    membership = bus.parts.pipeline._membership
    first = connect().subscribe("users.one")
    bus.publish("users.one", 0)
    known = membership.get("users.one")
    newcomer = connect().subscribe("users.*")
    known.stale = False
    membership._known["users.one"] = known
    bus.publish("users.one", 1)
    assert [first.get(timeout=5).data for _ in range(2)] == [0, 1]
    message = newcomer.get(timeout=5)
    assert message is not None
    assert message.data == 1


def check_the_last_subscriber_is_not_overlooked(bus: Bus, connect: Connect) -> None:
    """Fail if a publisher concludes from a stale view that nobody is there."""
    connect().subscribe("users").unsubscribe()
    with pytest.raises(NoSubscribers):
        bus.publish("users", 0)
    known = remember(bus)
    assert known.members == ()
    sub = connect().subscribe("users")
    make_the_watch_late(bus, known)
    bus.publish("users", 1)
    assert sub.get(timeout=5).data == 1


def test_nobody_is_believed_only_after_the_leader_has_confirmed_it(bus: Bus, connect: Connect) -> None:
    """A stale view of an empty topic does not lead to NoSubscribers."""
    check_the_last_subscriber_is_not_overlooked(bus, connect)


def test_without_that_confirmation_somebody_would_be_overlooked(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking the mechanism on purpose."""

    def unconfirmed(self: Pipeline, outgoing: object) -> Members:
        snapshot = self._membership.get(outgoing.topic)
        outgoing.targets = snapshot.members
        if not snapshot.members:
            raise NoSubscribers(outgoing.topic)
        return snapshot

    monkeypatch.setattr(Pipeline, "_resolve", unconfirmed)
    with pytest.raises(NoSubscribers):
        check_the_last_subscriber_is_not_overlooked(bus, connect)


def test_a_subscriber_that_left_is_not_written_to(bus: Bus, connect: Connect) -> None:
    """A stale view with one too many: the message goes to those who are there."""
    staying, leaving = connect().subscribe("users"), connect().subscribe("users")
    bus.publish("users", 0)
    known = remember(bus)
    leaving.unsubscribe()
    make_the_watch_late(bus, known)
    receipt = bus.publish("users", 1)
    assert [staying.get(timeout=5).data for _ in range(2)] == [0, 1]
    assert receipt.wait(timeout=5).acked == (staying.id,)
    assert receipt.gone == {}


def check_views_do_not_go_back(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail if a message that waited for its turn reaches a subscription that an earlier one found gone."""
    staying, vanishing = connect().subscribe("users"), connect().subscribe("users", ack="manual")
    bus.publish("users", 0)
    publisher, waiting = bus.parts.pipeline, threading.Event()
    enter = Pipeline._enter

    def announce(self: Pipeline, deadline: float) -> None:
        waiting.set()
        enter(self, deadline)

    monkeypatch.setattr(Pipeline, "_enter", announce)
    thread = threading.Thread(target=bus.publish, args=["users", "late"])
    with publisher._order:
        thread.start()
        assert waiting.wait(10)
        raw.delete(tree.registration("users", vanishing.id))  # as its session's end does: no epoch moves
        publisher._membership.forget("users")
        assert [m.subscription for m in publisher._membership.get("users").members] == [staying.id]
    thread.join(20)
    assert [staying.get(timeout=5).data for _ in range(2)] == [0, "late"]
    assert len(raw.get_children(tree.queue(vanishing.id, "users"))) == 1


def test_a_publisher_does_not_go_back_to_an_older_view(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a subscriber whose session expired would find a message, miss the one before it, and hear of a gap later."""
    check_views_do_not_go_back(bus, connect, raw, tree, monkeypatch)


def test_without_the_second_look_it_would(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking it on purpose."""
    monkeypatch.setattr(Audience, "is_newest", lambda *_args: True)
    with pytest.raises(AssertionError):
        check_views_do_not_go_back(bus, connect, raw, tree, monkeypatch)


def test_of_two_reads_at_once_the_one_asked_later_counts(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the answer to the earlier one is worked through last."""
    staying, vanishing = connect().subscribe("users"), connect().subscribe("users")
    membership = Audience(bus.parts.session, tree)
    read = Audience._read
    results: list[Members] = []

    def overtaken(self: Audience, *args: object) -> object:
        monkeypatch.setattr(Audience, "_read", read)
        raw.delete(tree.registration("users", vanishing.id))
        results.append(membership.refresh("users"))
        return read(self, *args)

    monkeypatch.setattr(Audience, "_read", overtaken)
    results.append(membership.refresh("users"))
    assert results[0] is results[1]
    assert [member.subscription for member in membership.get("users").members] == [staying.id]


def test_if_everybody_leaves_meanwhile_the_publisher_is_told(bus: Bus, connect: Connect) -> None:
    """NoSubscribers after a refused transaction too; with if_nobody="drop" it is fine."""
    for options in ({}, {"if_nobody": "drop"}):
        sub = connect().subscribe("users")
        bus.publish("users", 0)
        known = remember(bus)
        sub.unsubscribe()
        make_the_watch_late(bus, known)
        if options:
            assert bus.publish("users", 1, **options).wait(timeout=5).acked == ()
        else:
            with pytest.raises(NoSubscribers):
                bus.publish("users", 1)


def test_changes_of_membership_do_not_disturb_the_order_of_a_pipeline(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """Many frames in flight while subscribers come and go: everything once and in order."""
    listener = Listener()
    listener.subscribe(connect(), "users")
    other = connect()
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            other.subscribe("users").unsubscribe()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        receipts = bus.publish_many("users", (b"%06d" % number + b"x" * 500 for number in range(8000)))
    finally:
        stop.set()
        thread.join(60)
    assert len(receipts) == 8000
    eventually(lambda: len(listener.data) >= 8000)
    assert [int(data[:6]) for data in listener.data] == list(range(8000))


def test_a_subscription_given_up_while_zookeeper_is_away_is_gone_when_it_is_back(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Its session lives on, so nobody else would remove it: receipts would wait for it, and its queue would fill."""
    bus, other = connect(request_timeout=0.3), connect()
    sub = bus.subscribe("users")
    multi = bus.parts.session.multi

    def away(*_args: object, **_kwargs: object) -> None:
        raise ConnectionLost("cut", outcome_unknown=False)

    monkeypatch.setattr(bus.parts.session, "multi", away)
    with pytest.raises(ConnectionLost):
        sub.unsubscribe()
    monkeypatch.setattr(bus.parts.session, "multi", multi)
    eventually(lambda: not other.subscriptions("users"), what="the end of the registration")
    eventually(lambda: not other.queues(), what="the end of the queue")


def test_subscribers_that_come_and_go_leave_no_watches_and_no_snapshots_behind(bus: Bus, connect: Connect) -> None:
    """The list of patterns does not change with them: read again each time, it is watched once."""

    def watches() -> int:
        return sum(len(watches) for kind in bus.parts.session._connection._once.values() for watches in kind.values())

    def snapshots() -> int:
        return sum(type(each) is Members for each in gc.get_objects())

    guest = connect()
    sub = guest.subscribe("users")
    bus.publish("users", 0)
    sub.close()
    before = watches(), snapshots()
    for number in range(20):
        sub = guest.subscribe("users")
        bus.publish("users", number)
        assert sub.get(timeout=10).data == number
        sub.close()
    gc.collect()
    assert watches() <= before[0] + 1
    assert snapshots() <= before[1] + 2
