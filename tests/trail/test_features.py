"""What selectors, repeated ids, priorities, patterns and subscriptions made anew leave in a trail."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from tests.support.oracle import audit, exported
from tests.support.trails import read
from zkms.trail.event import Event, called


def numbers(event: Event) -> list[int]:
    """The messages that a line is about."""
    assert event.seq is not None
    assert event.n is not None
    return [event.seq + place for place in event.places or range(event.n)]


def of(trail: Path, *names: str) -> list[Event]:
    """The lines that tell of these happenings."""
    return [event for event in read(trail) if event.event in names]


def publish_coloured(bus: zkms.Bus, colours: str) -> None:
    """A message for each letter, packed into one frame, with its colour as a header."""
    with bus.publisher("paint", linger=10.0) as publisher:
        for number, colour in enumerate(colours, 1):
            publisher.send(number, headers={"colour": colour})


@pytest.mark.parametrize("kind", ["live", "durable"])
def test_a_selector_leaves_the_numbers_that_fit(connect: Connect, trail: Path, tmp_path: Path, kind: str) -> None:
    """Of a frame of ten, its second, sixth and tenth message: not the first three, and not one too many."""
    buses = [connect(client_id=name) for name in ("ann", "bob", "eve")]
    options = {} if kind == "live" else {"name": "reds"}
    reds = buses[1].subscribe("paint", where={"colour": "r"}, ack="auto", **options)
    buses[2].subscribe("paint", lambda _message: None)
    publish_coloured(buses[0], "brgbbrbgbr")
    got: list[int] = []
    while len(got) < 3:
        got += [message.data for message in reds.fetch(10, timeout=20.0)]
    for bus in reversed(buses):
        bus.close()
    assert got == [2, 6, 10]
    for name in ("delivered", "acked"):
        assert [n for event in of(trail, name) if event.sub == reds.id for n in numbers(event)] == [2, 6, 10]
    assert {n for e in of(trail, "published") if reds.id in (e.subs or []) for n in numbers(e)} == {2, 6, 10}
    assert audit(exported(trail, tmp_path / "out")) == set()


def test_a_repeated_id_leaves_a_hole(connect: Connect, trail: Path, eventually: Eventually) -> None:
    """The frame without the message that was stored before: what is delivered is what was published."""
    bus = connect(client_id="ann")
    got: list[int] = []
    bus.subscribe("users", lambda message: got.append(message.data))
    bus.publish("users", 0, id="b")
    bus.publish_many("users", [1, 2, 3], id=lambda number: "abc"[number - 1])
    eventually(lambda: 3 in got)
    bus.close()
    for name in ("published", "delivered", "acked"):
        assert [numbers(event) for event in of(trail, name)] == [[1], [2, 4]]


def test_what_is_left_out_of_a_part_has_its_own_number(connect: Connect, trail: Path, eventually: Eventually) -> None:
    """A message that cannot be decoded, and one that has expired, of a frame that came in part; when that was."""
    bus = connect(client_id="ann")
    errors: list[object] = []
    bus.subscribe("users", lambda _message: None, type=int, on_error=lambda error, _message: errors.append(error))
    bus.publish("users", 0, id="a")
    bus.publish_many("users", [1, "two", 3], id=lambda data: {1: "a", "two": "b", 3: "c"}[data])
    eventually(lambda: errors)
    pulled = bus.subscribe("offers")
    bus.publish("offers", 0, id="x")
    before = time.time()
    bus.publish_many("offers", "xy", id=str, ttl=0.05)
    eventually(lambda: time.time() > before + 0.1)
    while pulled.get(timeout=0.1) is not None:
        pass
    bus.close()
    assert [numbers(event) for event in of(trail, "dead")] == [[3]]
    (expired,) = of(trail, "expired")
    assert numbers(expired) == [7]
    assert expired.expires is not None
    assert before < expired.expires <= time.time()


@pytest.mark.parametrize("kind", ["live", "durable"])
def test_a_priority_stands_with_all_that_happens_to_a_message(connect: Connect, trail: Path, kind: str) -> None:
    """And is left out where there is none."""
    bus = connect(client_id="ann")
    options = {} if kind == "live" else {"name": "audit"}
    subscription = bus.subscribe("users", ack="auto", prefetch=1, **options)
    bus.publish("users", "plain")
    bus.publish("users", "urgent", priority=7)
    for _ in range(2):
        assert subscription.get(timeout=20.0) is not None
    bus.close()
    for name in ("published", "delivered", "acked"):
        assert {event.seq: event.priority for event in of(trail, name)} == {1: None, 2: 7}


def test_a_subscription_to_a_pattern_has_one_name(connect: Connect, trail: Path, eventually: Eventually) -> None:
    """With its pattern, wherever it is told of: its messages are of other topics, and the plain name may have those."""
    bus = connect(client_id="ann")
    gaps: list[object] = []
    for topic in ("users.*", "users.new"):
        bus.subscribe(topic, name="audit", limit=2, overflow="gap", on_gap=gaps.append)
    for number in range(4):
        bus.publish("users.new", number)
    eventually(lambda: len(bus.subscriptions("users.new")) == 1)
    for subscription in list(bus.parts.subscriptions.consumers.values()):
        while (message := subscription.get(timeout=0.5)) is not None:
            message.ack()
        subscription.unsubscribe()
    bus.close()
    pattern = called("audit", "users.*")
    assert pattern == "audit (users.*)"
    told = of(trail, "subscribed", "delivered", "acked", "gap", "unsubscribed")
    names = {(event.event, event.sub, event.topic) for event in told}
    assert names == {
        (name, sub, topic if name in ("subscribed", "gap", "unsubscribed") else "users.new")
        for name in ("subscribed", "delivered", "acked", "gap", "unsubscribed")
        for sub, topic in (("audit", "users.new"), (pattern, "users.*"))
    }
    assert of(trail, "published")[0].subs == ["audit", pattern]


def test_giving_up_a_durable_subscription_is_recorded(connect: Connect, trail: Path) -> None:
    """With the transaction; who reads it under the same name afterwards is a later owner than all before."""
    bus = connect(client_id="ann")
    for _ in range(2):
        bus.subscribe("users", name="audit").close()
    again = bus.subscribe("users", name="audit")
    again.unsubscribe()
    bus.subscribe("users", name="audit")
    bus.close()
    (given_up,) = of(trail, "unsubscribed")
    assert (given_up.sub, given_up.topic, given_up.kind) == ("audit", "users", "durable")
    epochs = [event.epoch or 0 for event in of(trail, "subscribed") if event.epoch is not None]
    assert len(epochs) == 4
    assert epochs == sorted(set(epochs))
    assert given_up.zxid is not None
    assert epochs[2] < given_up.zxid < epochs[3]


def test_a_message_that_is_given_back_says_when_it_is_due(connect: Connect, trail: Path) -> None:
    """So that a redelivery can be held against it."""
    bus = connect(client_id="ann")
    worker = bus.subscribe("jobs", group="workers", partitions=1)
    bus.publish("jobs", 1)
    message = worker.get(timeout=20.0)
    assert message is not None
    before = time.time()
    message.nak(delay=60.0)
    bus.close()
    (nacked,) = of(trail, "nacked")
    assert nacked.due is not None
    assert nacked.due == pytest.approx(before + 60.0, abs=30.0)
