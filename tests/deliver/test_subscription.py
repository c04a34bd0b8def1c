"""Subscriptions: push and pull, acks, handlers that fail or hang, and closing at any moment."""

from __future__ import annotations

import threading
import time
import zlib
from typing import Any

import msgspec
import pytest

import zkms
from tests.support.buses import Connect, Eventually
from tests.support.listener import Listener
from zkms import (
    AlreadyAcked,
    AlreadySubscribed,
    Bus,
    CannotDecode,
    Closed,
    InvalidArgument,
    Message,
    NoSubscribers,
    NotSubscribed,
    Unauthorised,
)
from zkms.server.server import Server
from zkms.zookeeper.connection import Done

pytestmark = pytest.mark.on_asyncio_too

# -- push --------------------------------------------------------------------------------------------------------------


@pytest.mark.of_threads
def test_handlers_hear_messages_in_order_on_a_thread_of_their_own(bus: Bus, eventually: Eventually) -> None:
    """Named after the topic, one for each subscription."""
    seen: list[tuple[int, str]] = []
    bus.subscribe("users", lambda message: seen.append((message.data, threading.current_thread().name)))
    bus.publish_many("users", range(500))
    eventually(lambda: len(seen) == 500)
    assert [data for data, _ in seen] == list(range(500))
    assert {name for _, name in seen} == {"zkms-deliver-users"}


def test_a_handler_that_raises_is_reported_and_goes_on(bus: Bus, eventually: Eventually) -> None:
    """on_error gets the exception and the message; the next message is delivered; nobody else is affected."""
    heard: list[Any] = []
    errors: list[tuple[Exception, Message | None]] = []

    def handler(message: Message) -> None:
        heard.append(message.data)
        if message.data == 1:
            raise LookupError("no such user")

    bus.subscribe("users", handler, on_error=lambda error, message: errors.append((error, message)))
    bus.publish_many("users", range(5))
    eventually(lambda: len(heard) == 5)
    ((error, message),) = errors
    assert isinstance(error, LookupError)
    assert message is not None
    assert message.data == 1


@pytest.mark.of_threads  # an event loop lets it pass, as it always does
def test_a_handler_that_wants_to_exit_ends_nothing(bus: Bus, eventually: Eventually) -> None:
    """It would end the thread at most, and the deliveries with it: reported as well."""
    heard: list[Any] = []
    errors: list[Exception] = []

    def handler(message: Message) -> None:
        heard.append(message.data)
        if message.data == 2:
            raise SystemExit("even this")

    bus.subscribe("users", handler, on_error=lambda error, _message: errors.append(error))
    bus.publish_many("users", range(5))
    eventually(lambda: len(heard) == 5)
    assert "even this" in str(errors[0])


@pytest.mark.parametrize("failure", [ValueError, pytest.param(SystemExit, marks=pytest.mark.of_threads)])
def test_callbacks_that_raise_stop_nothing(bus: Bus, eventually: Eventually, failure: type[BaseException]) -> None:
    """on_error itself may be broken."""
    heard: list[Any] = []

    def fail(*_args: object) -> None:
        raise failure("broken callback")

    def handler(message: Message) -> None:
        heard.append(message.data)
        raise LookupError

    bus.subscribe("users", handler, on_error=fail, on_gap=fail)
    bus.publish_many("users", range(3))
    eventually(lambda: len(heard) == 3)


def test_a_handler_that_hangs_hinders_nobody_else(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Not other subscribers, not other topics of the same bus, not publishers."""
    stuck, same_bus, other_bus = Listener(), Listener(), Listener()
    stuck.go.clear()
    stuck.subscribe(bus, "users")
    same_bus.subscribe(bus, "prices")
    other_bus.subscribe(connect(), "users")
    for number in range(20):
        bus.publish("users", number)
        bus.publish("prices", number)
    eventually(lambda: len(same_bus.data) == len(other_bus.data) == 20)
    assert stuck.data == [0]
    stuck.go.set()
    eventually(lambda: len(stuck.data) == 20)


def test_closing_leaves_a_hanging_handler_behind_in_bounded_time(connect: Connect) -> None:
    """Several of them as well, and the session ends."""
    bus = connect()
    listeners = [Listener() for _ in range(4)]
    for number, listener in enumerate(listeners):
        listener.go.clear()
        listener.subscribe(bus, f"topic {number}")
        bus.publish(f"topic {number}", 1)
    while not all(listener.data for listener in listeners):
        time.sleep(0.01)
    began = time.monotonic()
    bus.close(timeout=1.0)
    assert time.monotonic() - began < 8
    assert bus.parts.session.state.value == "closed"
    for listener in listeners:
        listener.go.set()


def test_a_handler_is_not_called_after_unsubscribe_returned(bus: Bus) -> None:
    """Only the message in hand is finished, however many came with it."""
    heard: list[Any] = []
    entered = threading.Event()

    def handler(message: Message) -> None:
        heard.append(message.data)
        entered.set()
        time.sleep(0.05)

    sub = bus.subscribe("users", handler)
    bus.publish_many("users", range(200))
    assert entered.wait(10)
    sub.unsubscribe()
    count = len(heard)
    assert count < 10
    time.sleep(0.2)
    assert len(heard) == count


@pytest.mark.of_threads  # tests/aio has its own
def test_a_handler_may_use_the_bus(bus: Bus, eventually: Eventually) -> None:
    """Publish, subscribe, unsubscribe itself, even close the bus."""
    done: list[str] = []

    def relay(message: Message) -> None:
        bus.publish("second", message.data)

    def last(message: Message) -> None:
        second.unsubscribe()
        bus.subscribe("third", lambda _message: (bus.close(), done.append("closed")))
        bus.publish("third", "end")

    bus.subscribe("first", relay)
    second = bus.subscribe("second", last)
    bus.publish("first", "x")
    eventually(lambda: done)
    with pytest.raises(Closed):
        bus.publish("first", 1)


# -- pull --------------------------------------------------------------------------------------------------------------


def test_get_waits_for_a_message_or_for_its_time_out(bus: Bus) -> None:
    """None when nothing came; 0 looks once."""
    sub = bus.subscribe("users")
    assert sub.get(timeout=0) is None
    began = time.monotonic()
    assert sub.get(timeout=0.2) is None
    assert 0.2 <= time.monotonic() - began < 2
    threading.Timer(0.1, bus.publish, ["users", "x"]).start()
    assert sub.get().data == "x"


def test_fetch_takes_what_is_there(bus: Bus, eventually: Eventually) -> None:
    """Up to the count, without waiting for more."""
    sub = bus.subscribe("users")
    assert sub.fetch(10, timeout=0.05) == []
    bus.publish_many("users", range(25))
    assert [message.data for message in sub.fetch(10, timeout=5)] == list(range(10))
    assert [message.data for message in sub.fetch(100, timeout=5)] == list(range(10, 25))
    with pytest.raises(InvalidArgument):
        sub.fetch(0)


def test_iterating_acks_when_the_loop_comes_back(bus: Bus, connect: Connect) -> None:
    """And ends when the subscription does."""
    sub = connect().subscribe("users")
    receipts = [bus.publish("users", number) for number in range(3)]
    seen = []
    for message in sub:
        seen.append(message.data)
        assert receipts[message.data].wait(timeout=0.1).pending == (sub.id,)
        if message.data > 0:
            assert receipts[message.data - 1].wait(timeout=5).acked == (sub.id,)
        if len(seen) == 3:
            ending = threading.Timer(0.1, sub.unsubscribe)
            ending.start()
    assert seen == [0, 1, 2]
    ending.join(10)


def test_get_acks_on_hand_over(bus: Bus, connect: Connect) -> None:
    """A live subscriber that has the message is done, as far as the publisher is concerned."""
    sub = connect().subscribe("users")
    receipt = bus.publish("users", 1)
    sub.get(timeout=5)
    assert receipt.wait(timeout=5).acked == (sub.id,)


def test_several_threads_share_a_pull_subscription(bus: Bus) -> None:
    """Each message goes to one of them."""
    sub = bus.subscribe("users")
    taken: list[int] = []

    def take() -> None:
        while (message := sub.get(timeout=0.5)) is not None:
            taken.append(message.data)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    bus.publish_many("users", range(2000))
    for thread in threads:
        thread.join(30)
    assert sorted(taken) == list(range(2000))


def test_pulling_from_a_subscription_with_a_handler_is_refused(bus: Bus) -> None:
    """The handler gets the messages."""
    sub = bus.subscribe("users", print)
    for call in (sub.get, lambda: sub.fetch(1), lambda: next(iter(sub))):
        with pytest.raises(InvalidArgument, match="handler"):
            call()


# -- acks --------------------------------------------------------------------------------------------------------------


def test_manual_acks_are_the_users(bus: Bus, connect: Connect) -> None:
    """Nothing is acked before ack(), and a second ack() is AlreadyAcked."""
    sub = connect().subscribe("users", ack="manual")
    receipt = bus.publish("users", 1)
    message = sub.get(timeout=5)
    assert receipt.wait(timeout=0.2).pending == (sub.id,)
    message.ack()
    assert receipt.wait(timeout=5).acked == (sub.id,)
    with pytest.raises(AlreadyAcked) as caught:
        message.ack()
    assert caught.value.message_id == message.id


def test_manual_acks_work_with_a_handler_and_later(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """A handler may return and leave the ack to somebody else."""
    listener = Listener()
    sub = listener.subscribe(connect(), "users", ack="manual")
    receipts = [bus.publish("users", number) for number in range(3)]
    eventually(lambda: len(listener.messages) == 3)
    listener.messages[1].ack()
    assert receipts[1].wait(timeout=5).acked == (sub.id,)
    assert receipts[0].wait(timeout=0.1).pending == (sub.id,)
    for message in (listener.messages[0], listener.messages[2]):
        message.ack()
    assert all(receipt.wait(timeout=5).acked == (sub.id,) for receipt in receipts)


def test_acks_after_the_end_harm_nobody(bus: Bus, connect: Connect) -> None:
    """A message acked after unsubscribe() and subscribe() does not take a new one with it."""
    other = connect()
    sub = other.subscribe("users", ack="manual")
    bus.publish("users", "old")
    old = sub.get(timeout=5)
    sub.unsubscribe()
    again = other.subscribe("users", ack="manual")
    receipt = bus.publish("users", "new")
    old.ack()
    assert again.get(timeout=5).data == "new"
    assert receipt.wait(timeout=0.3).pending == (again.id,)


# -- payloads ----------------------------------------------------------------------------------------------------------


class User(msgspec.Struct):
    """What subscribers of the next tests want."""

    id: int


def test_type_decodes_and_what_does_not_fit_is_reported(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """The bad message goes to on_error and blocks nothing, also in the middle of a frame."""
    listener = Listener()
    sub = listener.subscribe(connect(), "users", type=User)
    receipts = bus.publish_many("users", [{"id": 1}, {"id": "one"}, {"id": 2}])
    eventually(lambda: len(listener.events) == 3)
    assert listener.data == [User(1), User(2)]
    error = listener.events[1]
    assert isinstance(error, CannotDecode)
    assert "User" in str(error)
    assert receipts[0].wait(timeout=5).pending == ()
    bus.publish("users", {"id": 3})
    eventually(lambda: listener.data[-1] == User(3))
    assert sub.id


class Fussy(msgspec.Struct):
    """A type whose own code may raise anything."""

    id: int

    def __post_init__(self) -> None:
        if self.id == 1:
            raise KeyError("not this one")


def test_a_type_that_raises_is_reported_and_blocks_nothing(bus: Bus, eventually: Eventually) -> None:
    """Whatever its code raises is the message's fault, not the delivery's end."""
    listener = Listener()
    listener.subscribe(bus, "users", type=Fussy)
    bus.publish_many("users", [{"id": 0}, {"id": 1}, {"id": 2}])
    eventually(lambda: len(listener.events) == 3)
    assert [user.id for user in listener.data] == [0, 2]
    assert isinstance(listener.events[1], CannotDecode)


class Zipped:
    """A serialiser of the user's own."""

    name = "zipped"

    def encode(self, data: Any) -> bytes:
        """Compress text."""
        return zlib.compress(data.encode())

    def decode(self, raw: bytes) -> Any:
        """And back."""
        return zlib.decompress(raw).decode()


def test_other_serialisers_plug_in(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Z9: per call or for the whole bus; a reader without it is told its name and goes on."""
    with_codec = connect(codec=Zipped()).subscribe("users")
    given = connect().subscribe("users", codec=Zipped())
    without = Listener()
    without.subscribe(connect(), "users")
    bus.publish("users", "zipped", codec=Zipped())
    bus.publish("users", "plain")
    for sub in (with_codec, given):
        assert [sub.get(timeout=5).data for _ in range(2)] == ["zipped", "plain"]
    eventually(lambda: without.data == ["plain"])
    assert "zipped" in str(without.errors[0])


# -- life --------------------------------------------------------------------------------------------------------------


def test_a_second_live_subscription_to_a_topic_is_refused(bus: Bus, connect: Connect) -> None:
    """AlreadySubscribed; another bus may, and so may this one after unsubscribe()."""
    sub = bus.subscribe("users")
    with pytest.raises(AlreadySubscribed) as caught:
        bus.subscribe("users", print)
    assert caught.value.topic == "users"
    connect().subscribe("users")
    sub.unsubscribe()
    bus.subscribe("users")


def test_subscribing_twice_at_once_gives_one_subscription(bus: Bus) -> None:
    """Of several threads, one wins."""
    results: list[object] = []

    def subscribe() -> None:
        try:
            results.append(bus.subscribe("users"))
        except AlreadySubscribed as error:
            results.append(error)

    threads = [threading.Thread(target=subscribe) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sum(not isinstance(result, AlreadySubscribed) for result in results) == 1
    assert len(bus.subscriptions("users")) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"handler": 5},
        {"ack": "sometimes"},
        {"limit": 0},
        {"limit": "10"},
        {"limit": True},
        {"prefetch": 0},
        {"prefetch": 1.5},
        {"codec": ...},
    ],
    ids=str,
)
def test_bad_options_are_refused_and_leave_nothing_behind(bus: Bus, options: dict[str, Any]) -> None:
    """InvalidArgument, and the topic can be subscribed to right after."""
    with pytest.raises(InvalidArgument):
        bus.subscribe("users", **options)
    bus.subscribe("users")


def test_a_subscription_works_in_a_with_block(bus: Bus) -> None:
    """It is given up at the end; use after that is NotSubscribed."""
    with bus.subscribe("users") as sub:
        bus.publish("users", 1)
        assert sub.get(timeout=5).data == 1
    with pytest.raises(NoSubscribers):
        bus.publish("users", 2)
    for call in (sub.get, lambda: sub.fetch(1), lambda: next(iter(sub))):
        with pytest.raises(NotSubscribed):
            call()


def test_a_waiting_get_ends_when_the_subscription_does(bus: Bus) -> None:
    """Nobody hangs on a closed subscription."""
    sub = bus.subscribe("users")
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(sub.get()))
    thread.start()
    time.sleep(0.1)
    sub.unsubscribe()
    thread.join(10)
    assert results == [None]


def test_closing_a_bus_unsubscribes_and_shows_no_client(bus: Bus, connect: Connect) -> None:
    """Its queues, registrations and its own znode are gone; closing again is fine."""
    other = connect()
    other.subscribe("users")
    other.subscribe("prices", print)
    assert {info.client for info in bus.clients()} == {bus.client_id, other.client_id}
    other.close()
    other.close()
    assert [info.client for info in bus.clients()] == [bus.client_id]
    assert bus.queues() == []
    assert bus.subscriptions("users") == []


def test_a_closed_bus_says_so(zookeeper: Server, zookeeper_root: str) -> None:
    """Every call, with one error; the `with` block closes."""
    with zkms.connect(zookeeper.hosts, zookeeper_root) as bus:
        bus.subscribe("users")
    for call in (
        lambda: bus.publish("users", 1),
        lambda: bus.publish_many("users", [1]),
        lambda: bus.subscribe("users"),
        bus.topics,
        bus.clients,
        bus.queues,
        lambda: bus.subscriptions("users"),
    ):
        with pytest.raises(Closed):
            call()


def test_closing_in_the_middle_of_a_stream_is_clean(bus: Bus, connect: Connect) -> None:
    """While a backlog is prefetched and handled: no message after close(), the queue gone, the publisher unharmed."""
    other = connect()
    heard: list[Any] = []
    other.subscribe("users", lambda message: heard.append(message.data), prefetch=64)
    witness = connect().subscribe("users", prefetch=10_000)
    stop = threading.Event()
    published: list[int] = []

    def publish() -> None:
        while not stop.is_set():
            start = len(published)
            bus.publish_many("users", range(start, start + 200))
            published.extend(range(start, start + 200))

    thread = threading.Thread(target=publish)
    thread.start()
    while len(heard) < 500:
        time.sleep(0.005)
    other.close()
    count = len(heard)
    stop.set()
    thread.join(30)
    assert heard == list(range(len(heard)))
    assert len(heard) == count
    assert [witness.get(timeout=5).data for _ in published] == published
    assert [info.subscription for info in bus.queues()] == [witness.id]


def test_prefetch_bounds_what_is_read_ahead(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """A deep backlog comes in order through a small window."""
    listener = Listener()
    listener.go.clear()
    sub = listener.subscribe(connect(), "users", prefetch=10)
    for number in range(60):
        bus.publish("users", number)
    eventually(lambda: listener.data)
    assert len(sub._inbox._items) <= 10
    listener.go.set()
    eventually(lambda: len(listener.data) == 60)
    assert listener.data == list(range(60))
    assert listener.gaps == []


def test_two_buses_in_one_process_are_two_clients(connect: Connect) -> None:
    """With subscriptions, numbers and sessions of their own."""
    first, second = connect(), connect()
    subs = [first.subscribe("users"), second.subscribe("users")]
    first.publish("users", 1)
    second.publish("users", 2)
    for sub in subs:
        messages = [sub.get(timeout=5) for _ in range(2)]
        assert [message.data for message in messages] == [1, 2]
        assert [message.producer for message in messages] == [first.client_id, second.client_id]
    first.close()
    second.publish("users", 3)
    assert subs[1].get(timeout=5).data == 3


def test_a_process_that_comes_back_under_its_name_starts_afresh(connect: Connect) -> None:
    """Z5 for a fixed client_id: what the killed process left in its queue is not replayed to the new one."""
    bus, killed = connect(), connect(client_id="node-1")
    killed.subscribe("users", ack="manual")
    bus.publish("users", "for the old one")
    reborn = connect(client_id="node-1")
    sub = reborn.subscribe("users")
    bus.publish("users", "for the new one")
    assert sub.get(timeout=5).data == "for the new one"
    assert sub.get(timeout=0.1) is None


@pytest.mark.parametrize("timeout", [float("nan"), "1", True], ids=str)
def test_a_timeout_that_is_no_number_is_refused_at_once(bus: Bus, timeout: Any) -> None:
    """NaN compares with nothing: whoever waits for such a deadline waits for ever."""
    sub = bus.subscribe("users")
    receipt = bus.publish("users", 1)
    for call in (
        lambda: bus.publish("users", 2, timeout=timeout),
        lambda: bus.publish_many("users", [2], timeout=timeout),
        lambda: sub.get(timeout=timeout),
        lambda: receipt.wait(timeout),
        lambda: sub.unsubscribe(timeout),
        lambda: bus.close(timeout),
    ):
        with pytest.raises(InvalidArgument, match="timeout must be a number of seconds"):
            call()
    assert sub.get(timeout=float("inf")).data == 1


def test_a_listing_that_zookeeper_refuses_is_asked_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights may be taken away and given back: nobody should have to restart for that."""
    sub = bus.subscribe("users")
    assert sub.get(timeout=0.2) is None
    refused: list[str] = []

    def refuse(path: str, done: Done, *_args: object) -> None:
        monkeypatch.undo()
        refused.append(path)
        done(None, Unauthorised("not allowed", path=path))

    bus.publish("users", 1)
    assert sub.get(timeout=5).data == 1
    monkeypatch.setattr(bus.parts.session, "call_children", refuse)
    bus.parts.session._client.drop()  # after a reconnect the queue is listed
    bus.publish("users", 2)
    assert sub.get(timeout=10).data == 2
    assert refused == [bus.parts.tree.queue(sub.id, "users")]
