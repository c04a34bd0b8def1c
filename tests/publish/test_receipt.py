"""Receipts: whoever looks often leaves nothing behind, and whoever waits is woken."""

from __future__ import annotations

import threading
import time

from tests.support.buses import Connect, Eventually
from zkms import Bus


def watches(bus: Bus) -> int:
    """How many one-shot watches a bus has set."""
    return sum(len(watches) for kind in bus.parts.session._connection._once.values() for watches in kind.values())


def test_looking_again_and_again_adds_no_watches(bus: Bus, connect: Connect) -> None:
    """One for each entry, however often somebody looks, or waits for a moment."""
    subs = [connect().subscribe("users", ack="manual") for _ in range(2)]
    receipt = bus.publish("users", 1)
    before = watches(bus)
    for _ in range(50):
        assert len(receipt.wait(0).pending) == 2
    for _ in range(5):
        receipt.wait(0.01)
    assert watches(bus) - before == 2
    assert receipt._waiting == []
    for sub in subs:
        sub.get(timeout=10).ack()
    assert len(receipt.wait(20).acked) == 2


def test_a_watch_of_an_earlier_look_wakes_who_waits_now(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Also on behalf of another message that travelled with it."""
    sub = connect().subscribe("users", ack="manual")
    first, second = bus.publish_many("users", [1, 2])
    first.wait(0)
    took: list[float] = []

    def wait() -> None:
        began = time.monotonic()
        second.wait(120)
        took.append(time.monotonic() - began)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: second._waiting)
    for message in sub.fetch(2, timeout=10):
        message.ack()
    waiting.join()
    assert took[0] < 60
    assert first.acked == (sub.id,)
