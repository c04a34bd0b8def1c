"""bus.publisher(): a stream of messages, packed, in order, each with its result."""

from __future__ import annotations

import threading
import time

import pytest
from kazoo.client import KazooClient

import zkms
from tests.support.buses import Connect, Eventually
from zkms import Bus, Closed, InvalidArgument, InvalidMessage, NoSubscribers, Sent, Timeout
from zkms.server.server import Server
from zkms.testing import Proxy
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree

pytestmark = pytest.mark.on_asyncio_too


def test_a_stream_arrives_in_order_and_each_message_has_its_receipt(bus: Bus, connect: Connect) -> None:
    """Its number, and who has acked it."""
    sub = connect().subscribe("users")
    with bus.publisher("users") as stream:
        sent = [stream.send(number, key=str(number)) for number in range(5000)]
    assert [sub.get(timeout=10).data for _ in range(5000)] == list(range(5000))
    receipts = [one.result(timeout=5) for one in sent]
    assert [receipt.seq for receipt in receipts] == list(range(receipts[0].seq, receipts[0].seq + 5000))
    assert receipts[-1].wait(timeout=10).acked == (sub.id,)


def test_a_stream_is_packed_into_few_entries(bus: Bus, connect: Connect, raw: KazooClient, tree: Tree) -> None:
    """That is what makes it fast."""
    sub = connect().subscribe("users", prefetch=1, ack="manual")
    with bus.publisher("users", linger=0.5) as stream:
        for number in range(3000):
            stream.send(number)
    entries = [parse_entry(name) for name in raw.get_children(tree.queue(sub.id, "users"))]
    assert sum(entry.messages for entry in entries) == 3000
    assert len(entries) <= 30


def test_a_single_message_leaves_after_its_linger(bus: Bus) -> None:
    """Nobody has to call flush() for it to go."""
    sub = bus.subscribe("users")
    with bus.publisher("users", linger=0.05) as stream:
        one = stream.send("alone")
        assert sub.get(timeout=10).data == "alone"
        assert one.result(timeout=10).count == 1
        assert one.done()


def test_flush_does_not_wait_for_the_linger(bus: Bus) -> None:
    """What was sent is stored when it returns."""
    sub = bus.subscribe("users")
    with bus.publisher("users", linger=60.0) as stream:
        one = stream.send("x")
        assert not one.done()
        stream.flush(timeout=20)
        assert one.done()
        assert sub.get(timeout=10).data == "x"


def test_no_more_than_max_in_flight_are_on_their_way(
    connect: Connect, zookeeper: Server, eventually: Eventually
) -> None:
    """send() waits for room, and goes on when there is some."""
    listener = connect().subscribe("users")
    with Proxy(zookeeper.hosts) as proxy:
        bus = connect(hosts=proxy.hosts)
        bus.publish("users", "warm up")
        stream = bus.publisher("users", max_in_flight=10, linger=0.0)
        proxy.delay(0.3)
        done = threading.Event()

        def send() -> None:
            for number in range(50):
                stream.send(number)
            done.set()

        sender = threading.Thread(target=send)
        sender.start()
        most = 0
        while not done.is_set():
            most = max(most, stream._messages)
            time.sleep(0.005)
        sender.join()
        proxy.delay(0)
        stream.close(timeout=30)
        assert 0 < most <= 10
        assert [listener.get(timeout=10).data for _ in range(51)] == ["warm up", *range(50)]


def test_where_no_room_comes_send_says_so_in_time(connect: Connect, zookeeper: Server) -> None:
    """The message is not sent then, and the error says so."""
    connect().subscribe("users")
    with Proxy(zookeeper.hosts) as proxy:
        bus = connect(hosts=proxy.hosts)
        bus.publish("users", "warm up")
        stream = bus.publisher("users", max_in_flight=1, linger=0.0, timeout=1.0)
        proxy.black_hole()
        first = stream.send("one")
        with pytest.raises(Timeout, match="this one was not sent"):
            stream.send("two")
        assert not first.done() or isinstance(first._frame.future.exception(), zkms.ConnectionLost)
        proxy.heal()


def test_messages_that_nobody_gets_fail_one_by_one(bus: Bus) -> None:
    """The stream itself lives on."""
    stream = bus.publisher("users", linger=0.0)
    lost = stream.send("nobody there")
    with pytest.raises(NoSubscribers):
        lost.result(timeout=10)
    sub = bus.subscribe("users")
    stream.send("somebody there").result(timeout=10)
    assert sub.get(timeout=10).data == "somebody there"
    stream.close()
    with bus.publisher("elsewhere", if_nobody="drop") as dropping:
        assert dropping.send("x").result(timeout=10).acked == ()


@pytest.mark.of_threads  # an event loop awaits result() instead
def test_callbacks_hear_of_every_message(bus: Bus, eventually: Eventually) -> None:
    """Stored or not."""
    bus.subscribe("users", lambda _message: None)
    heard: list[Sent] = []
    with bus.publisher("users") as stream:
        sent = [stream.send(number) for number in range(100)]
        for one in sent:
            one.add_done_callback(heard.append)
    eventually(lambda: len(heard) == 100)
    assert set(heard) == set(sent)


def test_threads_may_share_a_stream(bus: Bus, connect: Connect) -> None:
    """Each one's messages stay in order."""
    sub = connect().subscribe("users")
    with bus.publisher("users") as stream:
        threads = [
            threading.Thread(target=lambda name=name: [stream.send([name, number]) for number in range(500)])
            for name in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    got = [sub.get(timeout=10).data for _ in range(2000)]
    for name in range(4):
        assert [number for each, number in got if each == name] == list(range(500))


def test_a_closed_stream_takes_no_more(bus: Bus, connect: Connect) -> None:
    """Nor does one whose bus is closed; what was sent before is stored."""
    sub = connect().subscribe("users")
    stream = bus.publisher("users", linger=60.0)
    stream.send("last words")
    stream.close()
    stream.close()
    with pytest.raises(Closed):
        stream.send("too late")
    other = connect()
    left_open = other.publisher("users", linger=60.0)
    left_open.send("of the closed bus")
    other.close()
    with pytest.raises(Closed):
        left_open.send("too late")
    assert [sub.get(timeout=10).data for _ in range(2)] == ["last words", "of the closed bus"]


def test_bad_options_are_refused_before_anything_is_sent(bus: Bus) -> None:
    """Each with its own sentence."""
    for options, what in (
        ({"linger": -1.0}, "linger"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_in_flight": True}, "max_in_flight"),
        ({"if_nobody": "ignore"}, "if_nobody"),
        ({"timeout": "soon"}, "timeout"),
    ):
        with pytest.raises(InvalidArgument, match=what):
            bus.publisher("users", **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        bus.publisher("")
    bus.subscribe("users")
    with bus.publisher("users") as stream, pytest.raises(InvalidMessage):
        stream.send(object())


@pytest.mark.parametrize("side", ["cut_reply", "cut_request"])
@pytest.mark.parametrize("place", [1, 3])
def test_a_stream_survives_the_loss_of_a_transaction(
    connect: Connect, zookeeper: Server, side: str, place: int
) -> None:
    """What was in flight behind it is sent again, in order, and stored once."""
    sub = connect().subscribe("users")
    with Proxy(zookeeper.hosts) as proxy:
        bus = connect(hosts=proxy.hosts, request_timeout=30.0)
        bus.publish("users", "warm up")
        cut = getattr(proxy, side)(place, op="multi")
        with bus.publisher("users", linger=0.0) as stream:
            for number in range(3000):
                stream.send(number)
                if number % 100 == 0:
                    time.sleep(0.001)  # so that there are many frames
        assert cut.wait(5)
        assert [sub.get(timeout=10).data for _ in range(3001)] == ["warm up", *range(3000)]
        assert sub.get(timeout=0.1) is None
