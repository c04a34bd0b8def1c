"""Publishing: who gets a message, in which order, and what its receipt tells. Rows Z1 to Z9 of the requirements."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.support.buses import Connect, Eventually
from tests.support.listener import Listener
from zkms import (
    Bus,
    InvalidArgument,
    InvalidMessage,
    InvalidTopic,
    Message,
    MessageTooLarge,
    NoSubscribers,
    ProducerFenced,
    Receipt,
    ZkmsError,
)
from zkms.server.server import Server
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import MAX_TRANSACTION

pytestmark = pytest.mark.on_asyncio_too

# -- who gets it -------------------------------------------------------------------------------------------------------


def test_a_message_goes_to_every_subscriber_of_its_topic_and_to_nobody_else(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """Z1, Z3: broadcast to one topic."""
    users = [Listener() for _ in range(3)]
    other = Listener()
    for listener in users:
        listener.subscribe(connect(), "users")
    other.subscribe(connect(), "prices")
    bus.publish("users", {"id": 42})
    bus.publish("users", {"id": 43})
    eventually(lambda: all(len(listener.data) == 2 for listener in users))
    assert [listener.data for listener in users] == [[{"id": 42}, {"id": 43}]] * 3
    assert other.events == []


def test_one_bus_subscribes_to_many_topics(bus: Bus, eventually: Eventually) -> None:
    """Z1: a consumer subscribes to many, and each topic's messages reach its own handler."""
    listeners = {f"topic {n}": Listener() for n in range(10)}
    for topic, listener in listeners.items():
        listener.subscribe(bus, topic)
    for topic in listeners:
        bus.publish(topic, topic)
    eventually(lambda: all(listener.data for listener in listeners.values()))
    assert {topic: listener.data for topic, listener in listeners.items()} == {topic: [topic] for topic in listeners}
    assert {info.topic for info in bus.topics()} == set(listeners)


def test_a_subscription_is_two_ephemerals_and_a_queue(bus: Bus, raw: KazooClient, tree: Tree) -> None:
    """Z2: /clients/ID and /subscribers/TOPIC/ID are ephemeral, /messages/ID/TOPIC is not."""
    sub = bus.subscribe("users")
    assert raw.exists(tree.client(bus.client_id)).ephemeralOwner == bus.parts.session.client_id[0]
    assert raw.exists(tree.registration("users", sub.id)).ephemeralOwner == bus.parts.session.client_id[0]
    assert raw.exists(tree.queue(sub.id, "users")).ephemeralOwner == 0
    assert [(info.subscription, info.client) for info in bus.subscriptions("users")] == [(sub.id, bus.client_id)]
    assert [(info.subscription, info.topic, info.registered) for info in bus.queues()] == [(sub.id, "users", True)]


def test_entries_are_sequential_and_persistent(bus: Bus, connect: Connect, raw: KazooClient, tree: Tree) -> None:
    """Z3: one znode per subscriber's queue, in one transaction."""
    subs = [connect().subscribe("users", ack="manual") for _ in range(3)]
    bus.publish("users", "x")
    stats = []
    for sub in subs:
        queue = tree.queue(sub.id, "users")
        (name,) = raw.get_children(queue)
        assert name.endswith(".0000000000")
        stats.append(raw.exists(f"{queue}/{name}"))
    assert {stat.ephemeralOwner for stat in stats} == {0}
    assert len({stat.czxid for stat in stats}) == 1, "the copies were not written by one transaction"


def test_publishing_to_nobody_is_an_error_that_can_be_told_apart(bus: Bus) -> None:
    """Z4: also for a topic that never existed, and for one that everybody left."""
    with pytest.raises(NoSubscribers, match="if_nobody='drop'") as caught:
        bus.publish("users", 1)
    assert caught.value.topic == "users"
    bus.subscribe("users").unsubscribe()
    with pytest.raises(NoSubscribers):
        bus.publish("users", 1)
    with pytest.raises(NoSubscribers):
        bus.publish_many("users", [1, 2, 3])


def test_publishing_to_nobody_is_fine_if_the_caller_says_so(bus: Bus) -> None:
    """Z4: if_nobody="drop", and nothing is stored."""
    receipt = bus.publish("users", 1, if_nobody="drop").wait(timeout=5)
    assert (receipt.acked, receipt.pending, receipt.gone) == ((), (), {})
    assert len(bus.publish_many("users", range(3), if_nobody="drop")) == 3
    sub = bus.subscribe("users")
    assert sub.get(timeout=0.2) is None


def test_nobody_is_never_concluded_while_somebody_is_subscribed(bus: Bus, connect: Connect) -> None:
    """Z4: subscribers come and go without pause, but one of two is always there."""
    first, second = connect(), connect()
    stop = threading.Event()
    subs = [first.subscribe("users"), second.subscribe("users")]

    def churn() -> None:
        while not stop.is_set():
            for number, other in ((0, first), (1, second)):
                subs[number].unsubscribe()
                subs[number] = other.subscribe("users")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for number in range(150):
            bus.publish("users", number)
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def test_live_subscribers_get_what_is_published_while_they_are_there(bus: Bus, connect: Connect) -> None:
    """Z5: nothing is replayed to a late subscriber."""
    early, late = connect().subscribe("users"), connect()
    bus.publish("users", "before")
    sub = late.subscribe("users")
    bus.publish("users", "after")
    assert sub.get(timeout=5).data == "after"
    assert sub.get(timeout=0.1) is None
    assert [early.get(timeout=5).data, early.get(timeout=5).data] == ["before", "after"]


def test_unsubscribing_removes_the_queue_and_the_registration(bus: Bus, raw: KazooClient, tree: Tree) -> None:
    """Z6: with all that was in the queue."""
    sub = bus.subscribe("users")
    bus.publish_many("users", range(1000))
    sub.unsubscribe()
    assert raw.get_children(tree.messages) == []
    assert raw.get_children(tree.topic("users")) == []
    assert bus.subscriptions("users") == []
    sub.unsubscribe()
    sub.close()


def test_subscribing_again_works_and_starts_afresh(bus: Bus) -> None:
    """Z6: what the first subscription did not take is not seen by the second."""
    first = bus.subscribe("users")
    bus.publish("users", "old")
    first.unsubscribe()
    for number in range(3):
        with bus.subscribe("users") as again:
            bus.publish("users", number)
            assert again.get(timeout=5).data == number
            assert again.get(timeout=0.1) is None


def test_a_subscription_ended_by_hand_of_another_program_can_be_given_up(
    bus: Bus, raw: KazooClient, tree: Tree
) -> None:
    """Z6: unsubscribe() leaves no registration behind, whatever was removed before."""
    for victim in ("queue", "topic"):
        sub = bus.subscribe("users")
        bus.parts.session.post(sub._reader.close)  # so that it does not register again
        raw.delete(tree.queue(sub.id, "users") if victim == "queue" else tree.topic("users"), recursive=True)
        sub.unsubscribe()
        assert bus.subscriptions("users") == []
        with pytest.raises(NoSubscribers):
            bus.publish("users", 1)


def test_a_publisher_chooses_whether_it_hears_itself(bus: Bus, connect: Connect) -> None:
    """Z7: to_self=False leaves out the publisher's own subscription and no other."""
    mine, other = bus.subscribe("users"), connect().subscribe("users")
    bus.publish("users", "for all")
    receipt = bus.publish("users", "for others", to_self=False)
    bus.publish_many("users", ["many for others"], to_self=False)
    bus.publish("users", "for all again")
    assert [mine.get(timeout=5).data for _ in range(2)] == ["for all", "for all again"]
    expected = ["for all", "for others", "many for others", "for all again"]
    assert [other.get(timeout=5).data for _ in range(4)] == expected
    assert receipt.wait(timeout=5).acked == (other.id,)
    assert mine.get(timeout=0.1) is None


def test_a_publisher_alone_with_itself_has_nobody_to_tell(bus: Bus) -> None:
    """Z7: to_self=False with no other subscriber is NoSubscribers."""
    bus.subscribe("users")
    with pytest.raises(NoSubscribers):
        bus.publish("users", 1, to_self=False)


@pytest.mark.parametrize(
    "data", [b"\x00\xff", "text", {"a": [1, None, 2.5]}, [], None, 0, True, {"b": b"bytes"}], ids=repr
)
def test_data_arrives_as_what_it_was(bus: Bus, data: Any) -> None:
    """Z9: bytes, str and anything JSON can hold."""
    sub = bus.subscribe("users")
    bus.publish("users", data, key="k", headers={"by": "me"}, id="id-1")
    message = sub.get(timeout=5)
    assert message.data == data
    assert type(message.data) is type(data)
    assert (message.key, message.headers, message.id, message.topic) == ("k", {"by": "me"}, "id-1", "users")
    assert abs(message.published_at - time.time()) < 60


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a/b", "a\x00", "x" * 300, "\ud800", "\U0001f600", None, 5], ids=ascii
)
def test_bad_topics_are_refused_everywhere_before_any_request(bus: Bus, topic: Any) -> None:
    """One error, whichever way the name comes in; ZooKeeper never sees it."""
    for call in (
        lambda: bus.publish(topic, 1),
        lambda: bus.publish_many(topic, [1]),
        lambda: bus.subscribe(topic),
        lambda: bus.subscriptions(topic),
    ):
        with pytest.raises(InvalidTopic):
            call()
    assert bus.topics() == []


@pytest.mark.parametrize(
    "options",
    [
        *({"key": key} for key in (1, b"k", "\ud800")),
        {"id": 1},
        {"id": "\udfff"},
        *({"headers": headers} for headers in ({"a": 1}, {1: "a"}, {"a": "\ud800"}, [("a", "b")], "text")),
        {"data": ...},
    ],
    ids=ascii,
)
def test_bad_messages_are_refused_before_any_request(bus: Bus, options: dict[str, Any]) -> None:
    """And nothing else is disturbed."""
    sub = bus.subscribe("users")
    with pytest.raises(InvalidMessage):
        bus.publish("users", **{"data": 1, **options})
    bus.publish("users", "good")
    assert sub.get(timeout=5).data == "good"


def test_a_bad_choice_for_if_nobody_is_refused(bus: Bus) -> None:
    """Rather than taken for one of the two."""
    with pytest.raises(InvalidArgument, match="if_nobody"):
        bus.publish("users", 1, if_nobody="ignore")  # type: ignore[arg-type]


def test_a_message_too_large_leaves_everything_in_flight_intact(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """2 MiB among 100 others in flight: the 100 arrive, on the same session and connection."""
    listener = Listener()
    listener.subscribe(connect(), "users")
    session_id, states = bus.parts.session.client_id[0], []
    bus.parts.session.listen(lambda: states.append(bus.parts.session.state))
    refused: list[MessageTooLarge] = []
    started = threading.Barrier(11)

    def publish(part: int) -> None:
        started.wait(10)
        for number in range(10):
            bus.publish("users", (part, number))

    def publish_large() -> None:
        started.wait(10)
        for _ in range(5):
            with pytest.raises(MessageTooLarge) as caught:
                bus.publish("users", b"x" * 2 * 1024 * 1024)
            refused.append(caught.value)

    threads = [threading.Thread(target=publish, args=[part]) for part in range(10)]
    threads.append(threading.Thread(target=publish_large))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    eventually(lambda: len(listener.data) == 100)
    assert sorted(listener.data) == [[part, number] for part in range(10) for number in range(10)]
    assert len(refused) == 5
    assert refused[0].size > 2 * 1024 * 1024
    assert refused[0].subscriptions == 1
    assert states == []
    assert bus.parts.session.client_id[0] == session_id


@pytest.mark.parametrize("subscribers", [1, 20])
def test_the_limit_that_the_error_names_is_the_limit(bus: Bus, connect: Connect, subscribers: int) -> None:
    """A message just as large as MessageTooLarge allows is stored for all, one byte more is refused."""
    buses = [connect() for _ in range(subscribers)]
    subs = [other.subscribe("users") for other in buses]
    with pytest.raises(MessageTooLarge) as caught:
        bus.publish("users", b"x" * MAX_TRANSACTION)
    limit, overhead = caught.value.limit, caught.value.size - MAX_TRANSACTION
    assert caught.value.subscriptions == subscribers
    assert limit > (MAX_TRANSACTION - 8192) // subscribers - 512
    data = b"y" * (limit - overhead)
    bus.publish("users", data)
    assert all(sub.get(timeout=10).data == data for sub in subs)
    with pytest.raises(MessageTooLarge):
        bus.publish("users", data + b"yy" * subscribers)


def test_many_large_messages_are_packed_below_the_limit(bus: Bus, connect: Connect) -> None:
    """publish_many never builds a frame that does not fit."""
    subs = [connect().subscribe("users") for _ in range(3)]
    bus.publish_many("users", [bytes([n]) * 60_000 for n in range(20)])
    for sub in subs:
        assert [sub.get(timeout=5).data[0] for _ in range(20)] == list(range(20))


# -- order -------------------------------------------------------------------------------------------------------------


def test_all_subscribers_hear_all_publishers_in_the_same_order(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """Several publishers at once: one order for everybody, each publisher's own kept."""
    listeners = [Listener() for _ in range(4)]
    for listener in listeners:
        listener.subscribe(connect(), "users")
    publishers = [connect() for _ in range(4)]

    def publish(number: int) -> None:
        for index in range(40):
            publishers[number].publish("users", [number, index])
        publishers[number].publish_many("users", ([number, index] for index in range(40, 200)))

    threads = [threading.Thread(target=publish, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    eventually(lambda: all(len(listener.data) == 800 for listener in listeners))
    assert all(listener.data == listeners[0].data for listener in listeners)
    for number in range(4):
        assert [index for who, index in listeners[0].data if who == number] == list(range(200))
    assert all(not listener.gaps for listener in listeners)


def test_one_bus_may_be_used_by_many_threads(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Each thread's messages keep their order, none is lost or doubled, and numbers are unique."""
    listener = Listener()
    listener.subscribe(connect(), "users")
    receipts: list[Receipt] = []

    def publish(thread: int) -> None:
        receipts.extend(bus.publish("users", [thread, index]) for index in range(50))

    threads = [threading.Thread(target=publish, args=[number]) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    eventually(lambda: len(listener.data) >= 800)
    assert max(Counter(map(tuple, listener.data)).values()) == 1
    for number in range(16):
        assert [index for who, index in listener.data if who == number] == list(range(50))
    assert len({receipt.id for receipt in receipts}) == 800
    assert {message.id for message in listener.messages} == {receipt.id for receipt in receipts}


def test_topics_do_not_hinder_each_other(bus: Bus, eventually: Eventually) -> None:
    """Messages of one bus to several topics, interleaved, arrive on each in order."""
    listeners = {topic: Listener() for topic in "abc"}
    for topic, listener in listeners.items():
        listener.subscribe(bus, topic)
    for number in range(30):
        for topic in listeners:
            bus.publish(topic, number)
    eventually(lambda: all(len(listener.data) == 30 for listener in listeners.values()))
    assert all(listener.data == list(range(30)) for listener in listeners.values())


# -- receipts ----------------------------------------------------------------------------------------------------------


def test_a_receipt_names_who_has_acked_and_who_has_not(bus: Bus, connect: Connect) -> None:
    """A hanging handler stays pending, and wait() returns when its time is over."""
    quick, slow = Listener(), Listener()
    acked = quick.subscribe(connect(), "users")
    pending = slow.subscribe(connect(), "users")
    slow.go.clear()
    receipt = bus.publish("users", 1)
    assert receipt.count == 1
    began = time.monotonic()
    assert receipt.wait(timeout=1.0) is receipt
    assert 0.9 <= time.monotonic() - began < 5
    assert (receipt.acked, receipt.pending, receipt.gone) == ((acked.id,), (pending.id,), {})
    slow.go.set()
    receipt.wait(timeout=10)
    assert (set(receipt.acked), receipt.pending, receipt.gone) == ({acked.id, pending.id}, (), {})
    assert receipt.wait(timeout=0).acked == receipt.acked


def test_a_receipt_without_a_time_limit_waits_until_all_have_acked(bus: Bus, connect: Connect) -> None:
    """And sleeps meanwhile: acks wake it."""
    sub = connect().subscribe("users", ack="manual")
    receipt = bus.publish("users", 1)
    message = sub.get(timeout=5)
    threading.Timer(0.2, message.ack).start()
    assert receipt.wait().acked == (sub.id,)


def test_a_receipt_can_be_asked_by_many_threads(bus: Bus, connect: Connect) -> None:
    """All of them see the end."""
    sub = connect().subscribe("users", ack="manual")
    receipt = bus.publish("users", 1)
    results: list[tuple[str, ...]] = []
    threads = [threading.Thread(target=lambda: results.append(receipt.wait(10).acked)) for _ in range(4)]
    for thread in threads:
        thread.start()
    sub.get(timeout=5).ack()
    for thread in threads:
        thread.join(20)
    assert results == [(sub.id,)] * 4


def test_a_subscriber_that_left_without_acking_is_gone_not_acked(bus: Bus, connect: Connect) -> None:
    """Whether the receipt looks in between or only later, and also if it has subscribed again."""
    other = connect()
    sub = other.subscribe("users", ack="manual")
    receipt = bus.publish("users", 1)
    looked_at = bus.publish("users", 2)
    assert looked_at.wait(timeout=0).pending == (sub.id,)
    sub.unsubscribe()
    again = other.subscribe("users", ack="manual")
    bus.publish("users", 3)
    bus.publish("users", 4)
    for each in (receipt, looked_at):
        each.wait(timeout=5)
        assert (each.acked, each.pending) == ((), ())
        assert set(each.gone) == {sub.id}
        assert each.gone[sub.id]
    again.unsubscribe()


@pytest.mark.parametrize("client_id", [None, "node-1"])
def test_a_subscriber_whose_queue_was_purged_is_gone_not_acked(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, client_id: str | None
) -> None:
    """Removed by hand, and taken up again by a process with the same id or another: never acked."""
    sub = connect(client_id=client_id).subscribe("users", ack="manual")
    name = sub.id  # it may get a new one, if it notices in time
    receipt = bus.publish("users", 1)
    bus.parts.session.post(sub._reader.close)
    raw.delete(tree.subscription(name), recursive=True)
    with suppress(NoNodeError):
        raw.delete(tree.registration("users", name))
    connect(client_id=client_id).subscribe("users", ack="manual")
    bus.publish("users", 1)
    receipt.wait(timeout=5)
    assert receipt.acked == ()
    assert set(receipt.gone) == {name}


def test_a_handler_that_raises_is_done_with_the_message(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """A live message is not repeated: the error went to on_error, the receipt does not wait for ever."""
    errors: list[Exception] = []

    def fail(message: Message) -> None:
        raise LookupError(message.data)

    sub = connect().subscribe("users", fail, on_error=lambda error, message: errors.append(error))
    assert bus.publish("users", "x").wait(timeout=10).acked == (sub.id,)
    eventually(lambda: errors)
    assert isinstance(errors[0], LookupError)


# -- many at once ------------------------------------------------------------------------------------------------------


def test_many_messages_travel_together_and_each_has_a_receipt(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree
) -> None:
    """Packed into few entries; receipts in order, one a message."""
    sub = connect().subscribe("users", ack="manual", prefetch=50_000)
    receipts = bus.publish_many("users", range(10_000), key=lambda data: f"k{data}", headers={"by": "me"})
    assert len(receipts) == 10_000
    assert sum(receipt.count for receipt in dict.fromkeys(receipts)) == 10_000
    assert len(raw.get_children(tree.queue(sub.id, "users"))) <= 8
    messages = [sub.get(timeout=5) for _ in range(10_000)]
    assert [message.data for message in messages] == list(range(10_000))
    assert [message.key for message in messages] == [f"k{n}" for n in range(10_000)]
    assert messages[7].headers == {"by": "me"}
    assert [message.seq for message in messages] == list(range(receipts[0].seq, receipts[0].seq + 10_000))
    for message in messages[:-1]:
        message.ack()
    assert receipts[0].wait(timeout=5).acked == (sub.id,)
    assert receipts[-1].wait(timeout=0.2).pending == (sub.id,), "its last message is not acked yet"
    messages[-1].ack()
    assert receipts[-1].wait(timeout=5).acked == (sub.id,)


def test_nothing_to_publish_is_fine(bus: Bus) -> None:
    """No messages, no receipts."""
    assert bus.publish_many("users", []) == []


def test_a_failure_among_many_says_how_many_were_stored(bus: Bus, connect: Connect) -> None:
    """The error is that of the bad message; its note has the count, and what was stored arrives."""
    sub = connect().subscribe("users", prefetch=10_000)
    data = [*range(6000), object(), *range(6000)]
    with pytest.raises(InvalidMessage) as caught:
        bus.publish_many("users", data)
    (note,) = caught.value.__notes__
    stored = int(note.split()[0])
    assert "of the 6001 messages taken were stored" in note
    assert 0 < stored <= 6000
    assert [sub.get(timeout=5).data for _ in range(stored)] == list(range(stored))
    assert sub.get(timeout=0.1) is None


def test_one_too_large_among_many_says_how_many_were_stored(bus: Bus, connect: Connect) -> None:
    """The same for a message that does not fit."""
    sub = connect().subscribe("users", prefetch=10_000)
    with pytest.raises(MessageTooLarge) as caught:
        bus.publish_many("users", [*range(300), b"x" * MAX_TRANSACTION, *range(300)])
    (note,) = caught.value.__notes__
    stored = int(note.split()[0])
    assert [sub.get(timeout=5).data for _ in range(stored)] == list(range(stored))


def test_after_a_failure_no_more_are_sent(bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever frame it was: what follows it is not stored as if nothing had happened."""
    monkeypatch.setattr("zkms.publish.budget.MAX_PER_FRAME", 10)
    sub = connect().subscribe("users")
    taken: list[int] = []

    def numbers() -> Any:
        for number in range(5000):
            taken.append(number)
            if number == 25:
                sub.unsubscribe()
            yield number

    with pytest.raises(NoSubscribers):
        bus.publish_many("users", numbers())
    assert len(taken) < 5000


def test_many_from_a_generator_that_fails_raises_its_error(bus: Bus) -> None:
    """The caller's own exceptions are not swallowed, and the bus goes on."""
    sub = bus.subscribe("users")

    def numbers() -> Any:
        yield 1
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        bus.publish_many("users", numbers())
    bus.publish("users", "later")
    assert sub.get(timeout=5).data == "later"


# -- producers ---------------------------------------------------------------------------------------------------------


def test_a_named_producer_goes_on_with_its_numbers_after_a_restart(connect: Connect) -> None:
    """Numbers never repeat."""
    sub = connect().subscribe("users")
    first = connect(producer="billing")
    first.publish_many("users", range(10))
    first.close()
    receipt = connect(producer="billing").publish("users", "next")
    assert receipt.seq == 11
    messages = [sub.get(timeout=5) for _ in range(11)]
    assert [message.seq for message in messages] == list(range(1, 12))
    assert {message.producer for message in messages} == {"billing"}


def test_two_processes_cannot_use_one_producer_name_at_once(connect: Connect) -> None:
    """The second takes it over; the first is told, each time, and stores nothing."""
    sub = connect().subscribe("users")
    first, second = connect(producer="billing"), connect(producer="billing")
    first.publish("users", 1)
    second.publish("users", 2)
    for _ in range(2):
        with pytest.raises(ProducerFenced) as caught:
            first.publish("users", "never")
        assert caught.value.owner == second.client_id
    second.publish("users", 3)
    assert [sub.get(timeout=5).data for _ in range(3)] == [1, 2, 3]
    assert sub.get(timeout=0.1) is None


def test_publishing_under_a_chroot_works(
    zookeeper: Server, zookeeper_root: str, raw: KazooClient, connect: Connect
) -> None:
    """hosts may end in a path, as with every ZooKeeper client; receipts and cleaning know their way."""
    raw.ensure_path(f"{zookeeper_root}/chroot")
    bus = connect(hosts=f"{zookeeper.hosts}{zookeeper_root}/chroot", root="/inside")
    with bus.subscribe("users") as sub:
        receipt = bus.publish("users", 1)
        assert sub.get(timeout=5).data == 1
        assert receipt.wait(timeout=5).acked == (sub.id,)
    assert raw.get_children(f"{zookeeper_root}/chroot/inside/messages") == []


class Order(msgspec.Struct):
    """A typed payload."""

    id: int


def test_objects_are_sent_as_they_are(bus: Bus) -> None:
    """Z9: a Struct goes out, and comes back with type=."""
    sub = bus.subscribe("orders", type=Order)
    bus.publish("orders", Order(7))
    assert sub.get(timeout=5).data == Order(7)


def test_every_error_of_publish_is_ours(bus: Bus) -> None:
    """One except clause is enough."""
    for call in (
        lambda: bus.publish("", 1),
        lambda: bus.publish("users", object()),
        lambda: bus.publish("nobody", 1),
        lambda: bus.publish("nobody", 1, timeout=0),
    ):
        with pytest.raises(ZkmsError):
            call()


def test_a_publisher_that_closes_leaves_nothing_behind(connect: Connect, raw: KazooClient, tree: Tree) -> None:
    """Unless it has a name, whose numbers go on; or somebody has still to read what it stored."""
    first, second = connect(), connect()
    subs = [bus.subscribe("users", ack="manual") for bus in (first, second)]
    passing, named, big = connect(), connect(producer="orders"), connect()
    passing.publish("users", "hello")
    named.publish("users", "hello")
    big.publish("users", b"x" * 20_000)
    for bus in (passing, named, big):
        bus.close()
    assert sorted(raw.get_children(tree.producers)) == sorted(["orders", big.client_id])
    assert [sub.get(timeout=5).data[:5] for sub in subs for _ in range(3)] == ["hello", "hello", b"xxxxx"] * 2
