"""Exactly one copy, whichever request of an exchange is lost, on its way to the server or on its way back."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkms
from tests.support.audience import Listener
from tests.support.buses import Connect, Eventually
from tests.support.oracle import audit, exported
from zkms.publish.pipeline import Pipeline
from zkms.publish.producer import Producer
from zkms.server.server import Server
from zkms.testing import Proxy, expire
from zkms.zookeeper.connection import Connection, Done
from zkms.zookeeper.deletion import delete_queue
from zkms.zookeeper.operations import Check, Operation, SetData
from zkms.zookeeper.session import State
from zkms.zookeeper.wire import Multi

Audience = Callable[..., list[Listener]]
TOPIC = "users"
SIDES = ("cut_reply", "cut_request")
BIG = 20_000
"""Characters of a message that is stored once, with a pointer in each queue, where there are two of them or more."""


def requests_of(proxy: Proxy, exchange: Callable[[], object]) -> int:
    """How many requests an exchange takes when nothing goes wrong."""

    def count() -> int:
        requests = proxy.requests
        return sum(requests.values()) - sum(requests[name] for name in ("ping", "connect", "close"))

    before = count()
    exchange()
    return count() - before


def cuts(proxy: Proxy, requests: int) -> Iterator[str]:
    """Cut each request of an exchange in turn, once before the server sees it and once after it was carried out."""
    for n, side in itertools.product(range(1, requests + 1), SIDES):
        cut: threading.Event = getattr(proxy, side)(n)
        yield f"{side}({n})"
        assert cut.wait(10), f"{side}({n}) was never reached"


# -- publish ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, BIG], ids=["copied", "stored once"])
def test_a_first_publish_survives_the_loss_of_any_of_its_requests(
    connect: Connect, audience: Audience, proxy: Proxy, size: int
) -> None:
    """A bus's first publish learns who subscribes and claims its number; each of these steps can be lost."""
    listeners = audience(TOPIC)
    expected: list[object] = []

    def publish(name: str) -> zkms.Receipt:
        data = name.ljust(size)
        expected.append(data)
        return bus.publish(TOPIC, data)

    bus = connect(through=proxy)
    requests = requests_of(proxy, lambda: publish("nothing lost"))
    assert requests >= 6
    bus = connect(through=proxy)
    for case in cuts(proxy, requests):
        receipt = publish(case).wait(20)
        assert sorted(receipt.acked) == sorted(listener.subscription.id for listener in listeners), case
        assert (receipt.pending, dict(receipt.gone)) == ((), {}), case
        bus.close()
        bus = connect(through=proxy)
    publish("last")
    for listener in listeners:
        assert listener.await_last(expected[-1]) == expected
        assert listener.gaps == []


def test_a_publish_survives_a_second_loss_in_the_middle_of_its_recovery(
    connect: Connect, audience: Audience, proxy: Proxy
) -> None:
    """The fence and the second attempt can be lost as well as the first."""
    listeners = audience(TOPIC)
    bus = connect(through=proxy)
    expected: list[object] = ["first"]
    bus.publish(TOPIC, "first")
    for first, second, later in itertools.product(SIDES, SIDES, range(1, 8)):
        case = f"{first}, {second} {later} later"
        one = getattr(proxy, first)(1, op="multi")
        two = getattr(proxy, second)(1 + later)
        expected.append(case)
        receipt = bus.publish(TOPIC, case).wait(20)
        assert len(receipt.acked) == 3, case
        assert one.wait(10), case
        if not two.is_set():
            proxy.heal()  # the recovery took fewer requests than that
    expected.append("last")
    bus.publish(TOPIC, "last")
    for listener in listeners:
        assert listener.await_last("last") == expected
        assert listener.gaps == []


def publish_in_frames(bus: zkms.Bus, proxy: Proxy, rounds: int, seed: int, sizes: tuple[int, ...]) -> list[object]:
    """Publish many frames in each round and cut once or twice in the middle of them; all that was published."""
    chance = random.Random(seed)
    published: list[object] = []
    for number in range(rounds):
        for _ in range(chance.choice((1, 1, 2))):
            getattr(proxy, chance.choice(SIDES))(chance.randint(1, 30), op=chance.choice(("multi", None)))
        size = chance.choice(sizes)
        batch: list[object] = [f"{number}.{i}".ljust(size) for i in range(120)]
        published += batch
        assert len(bus.publish_many(TOPIC, batch)) == len(batch)
        proxy.heal()
    published.append("last")
    bus.publish(TOPIC, "last")
    return published


@pytest.mark.usefixtures("audited")
def test_a_stream_of_frames_is_stored_once_and_in_order_wherever_it_is_cut(
    connect: Connect, audience: Audience, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """Thirty streams, many transactions in flight in each, the connection cut at random places of them."""
    monkeypatch.setattr("zkms.publish.budget.MAX_PER_FRAME", 4)
    listeners = audience(TOPIC)
    bus = connect(through=proxy)
    published = publish_in_frames(bus, proxy, rounds=30, seed=2, sizes=(0, BIG // 4))  # some are copied, some not
    for listener in listeners:
        assert listener.await_last("last") == published
        assert listener.gaps == []
    bodies = bus.parts.tree.bodies_of(bus.client_id)
    eventually(lambda: bus.parts.session.children(bodies)[0] == [], what="the end of all bodies")


@pytest.mark.usefixtures("audited")
def test_several_threads_of_one_bus_lose_nothing_and_keep_their_order(
    connect: Connect, audience: Audience, proxy: Proxy
) -> None:
    """They share transactions, the window and the recovery; each sees its own messages arrive in its order."""
    listeners = audience(TOPIC, 2)
    bus = connect(through=proxy)
    errors: list[BaseException] = []

    def publish(name: int) -> None:
        try:
            for i in range(30):
                bus.publish(TOPIC, [name, i])
        except zkms.ZkmsError as error:
            errors.append(error)

    threads = [threading.Thread(target=publish, args=(name,)) for name in range(12)]
    for thread in threads:
        thread.start()
    chance = random.Random(3)
    while any(thread.is_alive() for thread in threads):
        getattr(proxy, chance.choice(SIDES))(chance.randint(1, 20)).wait(1)
    for thread in threads:
        thread.join()
    proxy.heal()
    bus.publish(TOPIC, "last")
    assert errors == []
    orders = [listener.await_last("last") for listener in listeners]
    assert orders[0] == orders[1]
    for name in range(12):
        assert [data[1] for data in orders[0][:-1] if data[0] == name] == list(range(30))


@pytest.mark.usefixtures("audited")
def test_a_publisher_whose_session_expires_in_mid_stream_goes_on_where_it_was(
    connect: Connect, audience: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a publisher is ephemeral: a new session finds the number that the old one has stored."""
    monkeypatch.setattr("zkms.publish.budget.MAX_PER_FRAME", 4)
    listeners = audience(TOPIC)
    bus = connect()
    done = threading.Event()

    def keep_expiring() -> None:
        while not done.wait(0.1):
            expire(bus)

    disturber = threading.Thread(target=keep_expiring)
    disturber.start()
    expected: list[object] = []
    try:
        deadline = time.monotonic() + 20
        while bus.parts.session.generation < 4:
            assert time.monotonic() < deadline
            batch: list[object] = [f"{len(expected)}.{i}" for i in range(200)]
            expected += batch
            bus.publish_many(TOPIC, batch)
    finally:
        done.set()
        disturber.join()
    expected.append("last")
    bus.publish(TOPIC, "last")
    for listener in listeners:
        assert listener.await_last("last") == expected


@contextmanager
def deadly_reply(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Kill the connection thread that reads the next answer to a transaction, and lose the answer."""
    take = Connection._take_frame
    killed = threading.Event()

    def once(flow: Connection, frame: memoryview) -> bool:
        waiting = flow._unanswered
        if not killed.is_set() and waiting and isinstance(waiting[0].request, Multi):
            killed.set()
            raise RuntimeError("on purpose")
        return take(flow, frame)

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "_take_frame", once)
        yield killed


def test_a_publish_whose_answer_kills_kazoo_is_stored_once(
    connect: Connect, audience: Audience, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo never answers such a request; the session does, and the publisher finds out."""
    listeners = audience(TOPIC)
    bus = connect(request_timeout=30.0)
    bus.publish(TOPIC, "first")
    with deadly_reply(monkeypatch) as killed:
        receipt = bus.publish(TOPIC, "deadly")
        assert killed.is_set()
    assert len(receipt.wait(10).acked) == 3
    bus.publish(TOPIC, "last")
    for listener in listeners:
        assert listener.await_last("last") == ["first", "deadly", "last"]


# -- connect, subscribe, unsubscribe ---------------------------------------------------------------------------------


def test_connecting_survives_the_loss_of_any_of_its_requests(
    connect: Connect, proxy: Proxy, zookeeper_root: str
) -> None:
    """Even the first client of all, which makes the tree, may lose any answer."""
    connect()  # so that the test's own root exists
    numbers = itertools.count()

    def join() -> None:
        root = f"{zookeeper_root}/{next(numbers)}"
        with zkms.connect(proxy.hosts, root=root, cleaner=False) as bus:
            assert [client.client for client in bus.clients()] == [bus.client_id]

    requests = requests_of(proxy, join)
    for _case in cuts(proxy, requests):
        join()


def test_a_subscribe_survives_the_loss_of_any_of_its_requests(
    connect: Connect, proxy: Proxy, eventually: Eventually
) -> None:
    """When subscribe() returns, it is registered once, and the next message arrives once."""
    publisher, bus = connect(), connect(through=proxy)
    topics = (f"topic-{i}" for i in itertools.count())

    def subscribe() -> None:
        topic = next(topics)
        subscription = bus.subscribe(topic)
        assert [info.subscription for info in publisher.subscriptions(topic)] == [subscription.id]
        publisher.publish(topic, "one")
        publisher.publish(topic, "two")
        assert [subscription.get(timeout=20).data for _ in range(2)] == ["one", "two"]
        assert subscription.get(timeout=0) is None

    requests = requests_of(proxy, lambda: bus.subscribe(next(topics)))
    for _case in cuts(proxy, requests):
        subscribe()


def test_a_subscribe_that_raised_leaves_no_registration_behind(
    connect: Connect, proxy: Proxy, eventually: Eventually
) -> None:
    """It was carried out after all: publishers would fill a queue that nobody reads, for as long as the bus lives."""
    publisher = connect()
    bus = connect(through=proxy, request_timeout=1.0, session_timeout=20.0)
    bus.subscribe(TOPIC).unsubscribe()  # so that the topic is there, and one transaction is all it takes
    proxy.cut_reply(op="multi")
    proxy.refuse()  # so that the client does not come back with time left
    with pytest.raises(zkms.ConnectionLost):
        bus.subscribe(TOPIC)
    assert len(publisher.subscriptions(TOPIC)) == 1
    proxy.heal()
    eventually(lambda: not publisher.subscriptions(TOPIC), what="the end of the registration")
    eventually(lambda: not publisher.queues())
    assert bus.parts.session.generation == 1
    with bus.subscribe(TOPIC) as subscription:
        publisher.publish(TOPIC, "again")
        assert subscription.get(timeout=5).data == "again"


def test_an_unsubscribe_survives_the_loss_of_any_of_its_requests(connect: Connect, proxy: Proxy) -> None:
    """When it returns, nobody is registered and nothing of the queue is left; messages in it are no obstacle."""
    publisher, bus = connect(), connect(through=proxy)

    def subscribe() -> zkms.Subscription:
        subscription = bus.subscribe(TOPIC, prefetch=1)
        for i in range(3):
            publisher.publish(TOPIC, i)
        return subscription

    subscription = subscribe()
    assert subscription.get(timeout=5).data == 0
    requests = requests_of(proxy, subscription.unsubscribe)
    subscription = subscribe()
    for case in cuts(proxy, requests):
        subscription.unsubscribe()
        assert publisher.queues() == [], case
        with pytest.raises(zkms.NoSubscribers):
            publisher.publish(TOPIC, case)
        subscription = subscribe()


@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize("removed", [False, True], ids=["its queue is there", "its queue is gone"])
def test_registering_again_after_an_expiry_survives_the_loss_of_any_request(
    connect: Connect, proxy: Proxy, zookeeper: Server, eventually: Eventually, removed: bool
) -> None:
    """One gap, then every message once; also where the old queue has been removed and a new one has to be made."""
    listener = Listener(connect(through=proxy), TOPIC)
    publisher = connect()
    tree, session = publisher.parts.tree, listener.bus.parts.session
    expected: list[object] = []

    def publish(data: object) -> None:
        expected.append(data)
        publisher.publish(TOPIC, data)
        assert listener.await_last(data) == expected

    def cut_off() -> int:
        """Expire the listener's session while it cannot connect; its generation."""
        generation = session.generation
        proxy.refuse()
        proxy.drop()
        eventually(lambda: session.state is not State.CONNECTED)
        client = KazooClient(zookeeper.hosts, client_id=session.client_id)
        client.start()
        client.stop()
        client.close()
        if removed:
            delete_queue(publisher.parts.session, tree.queue(listener.subscription.id, TOPIC))
        listener.gaps.clear()
        return generation

    def come_back(generation: int) -> None:
        proxy.accept()
        eventually(lambda: session.generation > generation and listener.gaps)

    publish("first")
    requests = requests_of(proxy, lambda: come_back(cut_off()))
    for n, side in itertools.product(range(1, requests + 1), SIDES):
        generation = cut_off()
        getattr(proxy, side)(n)
        come_back(generation)
        proxy.heal()
        eventually(lambda: [info.subscription for info in publisher.subscriptions(TOPIC)] == [listener.subscription.id])
        publish(f"{side}({n})")
        assert len(listener.gaps) == 1, f"{side}({n}): {listener.gaps}"


# -- receive, ack, flags ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize("size", [0, BIG], ids=["copied", "stored once"])
def test_receiving_survives_the_loss_of_any_of_its_requests(
    connect: Connect, audience: Audience, proxy: Proxy, size: int
) -> None:
    """A lost listing, a lost entry or body and a lost ack lead neither to a second delivery nor to a missing one."""
    listener = Listener(connect(through=proxy), TOPIC)
    audience(TOPIC, 1)
    publisher = connect()
    expected: list[object] = []

    def exchange(name: str) -> None:
        batch = [f"{name}-{i}".ljust(size) for i in range(3)]
        expected.extend(batch)
        receipts = [publisher.publish(TOPIC, data) for data in batch]
        for receipt in receipts:
            assert listener.subscription.id in receipt.wait(20).acked, name
        assert listener.await_last(batch[-1]) == expected, name

    requests = requests_of(proxy, lambda: exchange("nothing lost"))
    assert requests >= 1
    for n, side in itertools.product(range(1, requests + 1), SIDES):
        getattr(proxy, side)(n)
        exchange(f"{side}({n})")
        proxy.heal()  # not all exchanges take as many: events fall together
    assert listener.gaps == []


def test_a_request_that_fails_alone_does_not_shift_the_answers_behind_it(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """A throttled server refuses one request and answers the next ones, on the same connection."""
    publisher, bus = connect(), connect()
    with bus.subscribe("blocker") as blocker:
        publisher.publish("blocker", "warm up")
        assert blocker.get(timeout=5) is not None
    call_get = bus.parts.session.call_get
    asked: list[tuple[str, Done]] = []
    numbers = [str(i).zfill(1000) for i in range(10)]  # too large for a name: they have to be asked for

    def throttled(path: str, done: Done) -> None:
        """All of them are asked for before the first is answered."""
        asked.append((path, done))
        if len(asked) == len(numbers):
            for place, (wanted, told) in enumerate(asked):
                if place != 2:
                    call_get(wanted, told)
                else:
                    bus.parts.session.post(told, None, zkms.ConnectionLost("throttled", path=wanted))
        elif len(asked) > len(numbers):
            call_get(path, done)

    listener = Listener(bus, TOPIC)
    monkeypatch.setattr(bus.parts.session, "call_get", throttled)
    for number in numbers:
        publisher.publish(TOPIC, number)
    assert listener.await_last(numbers[-1]) == numbers
    eventually(lambda: [queue.entries for queue in publisher.queues()] == [0])
    assert len(asked) > 10
    assert listener.gaps == []


def test_acks_under_the_longest_names_fit_into_their_transactions(
    connect: Connect, zookeeper_root: str, eventually: Eventually
) -> None:
    """Hundreds of paths of a thousand bytes each are more than one transaction takes."""
    root = f"{zookeeper_root}/{'r' * 250}/{'r' * 250}/{'r' * 250}"
    bus = connect(root=root, client_id="c" * 200)
    topic = "t" * 250
    subscription = bus.subscribe(topic, ack="manual", prefetch=2000)
    for i in range(500):
        bus.publish(topic, i)
    messages = [subscription.get(timeout=10) for _ in range(500)]
    hold = threading.Event()
    bus.parts.session.post(lambda: hold.wait(10))  # so that all of them wait together
    for message in messages:
        message.ack()
    hold.set()
    eventually(lambda: [queue.entries for queue in bus.queues()] == [0])


def test_acks_of_many_entries_survive_the_loss_of_their_transactions(
    connect: Connect, proxy: Proxy, eventually: Eventually
) -> None:
    """Deleting again what is deleted already harms nobody: the queue ends up empty and nothing comes twice."""
    bus, publisher = connect(through=proxy), connect()
    subscription = bus.subscribe(TOPIC, ack="manual", prefetch=500)
    expected = []
    for number, side in enumerate(SIDES * 3):
        for i in range(40):
            publisher.publish(TOPIC, [number, i])
            expected.append([number, i])
        messages = [subscription.get(timeout=10) for _ in range(40)]
        assert [message.data for message in messages] == expected[-40:]
        cut = getattr(proxy, side)(1 + number // 2, op="multi")
        for message in messages:
            message.ack()
        eventually(lambda: publisher.queues()[0].entries == 0)
        proxy.heal()
        assert cut.is_set() or number > 1
    assert subscription.get(timeout=0.2) is None


class Overflow:
    """A subscription whose queue has been filled past its limit of three."""

    def __init__(self, bus: zkms.Bus, publisher: zkms.Bus, topic: str) -> None:
        """Subscribe, and publish more than fits."""
        self.gaps: list[str] = []
        self.topic = topic
        self.publisher = publisher
        self.subscription = bus.subscribe(topic, limit=3, prefetch=1, on_gap=lambda gap: self.gaps.append(gap.reason))
        for i in range(6):
            publisher.publish(topic, i)

    def drain(self) -> None:
        """Take what is there, up to the gap."""
        assert [self.subscription.get(timeout=20).data for _ in range(3)] == [0, 1, 2], self.topic
        deadline = time.monotonic() + 20
        while not self.gaps:
            assert self.subscription.get(timeout=0.01) is None, self.topic
            assert time.monotonic() < deadline, self.topic

    def check(self) -> None:
        """One gap was announced, and what is published now arrives."""
        assert self.gaps == ["more than 3 messages were waiting"], self.topic
        self.publisher.publish(self.topic, "after")
        assert self.subscription.get(timeout=20).data == "after", self.topic
        assert self.subscription.get(timeout=0) is None
        assert len(self.gaps) == 1, self.topic
        self.subscription.unsubscribe()


def test_clearing_the_flag_of_a_full_queue_survives_the_loss_of_any_request(connect: Connect, proxy: Proxy) -> None:
    """One gap, then everything that is published from then on: the flag never stays, and is never announced twice."""
    publisher, bus = connect(), connect(through=proxy)
    overflow = Overflow(bus, publisher, "nothing-lost")
    requests = requests_of(proxy, overflow.drain)
    overflow.check()
    assert requests >= 3
    for n, side in itertools.product(range(1, requests + 1), SIDES):
        overflow = Overflow(bus, publisher, f"{side}-{n}")
        getattr(proxy, side)(n)
        overflow.drain()
        proxy.heal()
        overflow.check()


def test_flagging_a_full_queue_survives_the_loss_of_any_request(connect: Connect, proxy: Proxy) -> None:
    """The publisher's side of it: nothing is stored past the limit, and one gap says so."""
    bus = connect()

    def overflow(topic: str) -> Overflow:
        return Overflow(bus, publisher, topic)

    publisher = connect(through=proxy)
    requests = requests_of(proxy, lambda: overflow("nothing-lost"))
    for n, side in itertools.product(range(1, requests + 1), SIDES):
        getattr(proxy, side)(n)
        full = overflow(f"{side}-{n}")
        proxy.heal()
        full.drain()
        full.check()


# -- what the mechanisms are for -------------------------------------------------------------------------------------


def test_without_the_producers_number_the_same_stream_holds_duplicates(
    connect: Connect,
    audience: Audience,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    recorded: Path,
    tmp_path: Path,
) -> None:
    """A mutation: who sends again without a fence stores twice what was carried out; the audit of its trail sees it."""

    def advance(producer: Producer, last: int) -> SetData:
        return SetData(producer._path, producer._state(last))

    fence = Producer.fence
    monkeypatch.setattr(Producer, "advance", advance)
    monkeypatch.setattr(Producer, "fence", lambda producer: fence(producer) and 0)
    monkeypatch.setattr("zkms.publish.budget.MAX_PER_FRAME", 4)
    listeners = audience(TOPIC)
    bus = connect(through=proxy)
    published = publish_in_frames(bus, proxy, rounds=5, seed=2, sizes=(0,))
    for listener in listeners:
        got = listener.await_last("last")
        assert set(got) == set(published)
        assert len(got) > len(published)
    for each in (bus, *(listener.bus for listener in listeners)):
        each.close()
    found = audit(exported(recorded, tmp_path / "exported"))
    assert "duplicated" in {kind for kind, *_ in found}
    assert "missed" not in {kind for kind, *_ in found}


def subscribe_unnoticed(connect: Connect, proxy: Proxy) -> tuple[object, object]:
    """What a subscriber gets whose subscribe() returned before a publish, when the publisher cannot know yet."""
    publisher = connect(through=proxy)
    connect().subscribe(TOPIC)
    publisher.publish(TOPIC, "before")
    proxy.delay(0.2)  # the news of the second subscriber is still on its way when the publish begins
    late = connect().subscribe(TOPIC)
    publisher.publish(TOPIC, "first")
    proxy.delay(0)
    publisher.publish(TOPIC, "second")
    messages = [late.get(timeout=5), late.get(timeout=1)]
    return tuple(message and message.data for message in messages)  # type: ignore[return-value]


def test_a_publisher_that_has_not_heard_of_a_subscriber_reaches_it_all_the_same(connect: Connect, proxy: Proxy) -> None:
    """The epoch in the transaction is what tells, not the watch."""
    assert subscribe_unnoticed(connect, proxy) == ("first", "second")


def test_without_the_check_of_the_epoch_that_subscriber_misses_a_message(
    connect: Connect, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation: with any epoch accepted, a message goes to those that the publisher happens to know."""
    operations = Pipeline._operations

    def unchecked(publisher: Pipeline, *args: Any) -> list[Operation]:
        check, *rest = operations(publisher, *args)
        return [Check(check.path, -1), *rest]

    monkeypatch.setattr(Pipeline, "_operations", unchecked)
    assert subscribe_unnoticed(connect, proxy) == ("second", None)
