"""What callbacks on the connection's thread may do, and what must not wedge the publisher behind it."""

from __future__ import annotations

import sys

import pytest

from tests.support.buses import Connect, Eventually
from zkms import Bus, Sent, StoreError, ZkmsError


def test_a_callback_may_send_the_next_message(bus: Bus, eventually: Eventually) -> None:
    """Even where no more than one may be on its way: there is room again before anybody is told."""
    bus.subscribe("users", lambda _message: None)
    stream = bus.publisher("users", linger=0.0, max_in_flight=1, timeout=20.0)
    chain: list[Sent] = []

    def go_on(_done: Sent) -> None:
        if len(chain) < 5:
            chain.append(stream.send(len(chain)))
            chain[-1].add_done_callback(go_on)

    stream.send("first").add_done_callback(go_on)
    eventually(lambda: len(chain) == 5 and all(sent.done() for sent in chain))
    stream.close()


def test_a_callback_that_wants_to_exit_does_not_end_the_connection(bus: Bus) -> None:
    """It is logged, and everybody else goes on."""
    sub = bus.subscribe("users")
    with bus.publisher("users", linger=0.0) as stream:
        stream.send("deadly").add_done_callback(lambda _sent: sys.exit(1))
    bus.publish("users", "after")
    assert [sub.get(timeout=10).data for _ in range(2)] == ["deadly", "after"]


def test_a_transaction_that_turns_out_too_large_stops_none_behind_it(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an estimate may have missed: such a message is refused, and the next one is published."""
    bus = connect()
    connect().subscribe("users", lambda _message: None)
    monkeypatch.setattr("zkms.publish.shipment.transaction_size", lambda *_args: 0)
    with pytest.raises(StoreError, match="over the limit"):
        bus.publish("users", b"x" * 600_000)
    assert len(bus.publish("users", "after").wait(10).acked) == 1


def test_what_a_stream_sends_while_its_bus_closes_is_answered(connect: Connect, eventually: Eventually) -> None:
    """Stored or failed: nobody waits for ever."""
    connect().subscribe("users", lambda _message: None)
    bus = connect()
    stream = bus.publisher("users", linger=0.0)
    sent = [stream.send(number) for number in range(2000)]
    bus.close(timeout=0.0)
    with pytest.raises(ZkmsError):
        stream.send("too late")
    eventually(lambda: all(one.done() for one in sent))
