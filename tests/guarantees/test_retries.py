"""One caller with several messages of a key in hand, which fail in any order."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import zkms
from tests.support.buses import Connect

pytestmark = pytest.mark.on_one_server

TOPIC = "jobs"


def next_of(subscription: zkms.Consumer) -> zkms.Message:
    """The next message, which must come."""
    message = subscription.get(timeout=30)
    assert message is not None
    return message


def test_the_second_of_a_key_fails_before_and_after_the_first(connect: Connect) -> None:
    """Both wait for another attempt: the first one comes first, each of them once."""
    bus, reader = connect(), connect()
    subscription = reader.subscribe(TOPIC, group="workers", partitions=1, max_attempts=None, backoff=0.0)
    bus.publish_many(TOPIC, range(3), key=lambda _number: "same")
    first, second, third = (next_of(subscription) for _ in range(3))
    second.nak(0.0)
    again = next_of(subscription)
    assert again.data == 1
    first.nak(0.0)
    again.nak(0.0)
    third.nak(0.0)
    for expected in range(3):
        message = next_of(subscription)
        assert message.data == expected
        message.ack()
    assert subscription.get(timeout=0) is None
    assert [queue.entries for queue in bus.queues()] == [0]


def test_what_is_acked_while_others_of_its_key_wait_does_not_come_again(connect: Connect) -> None:
    """Nor does one come again that is still in hand when those before it are done with."""
    bus, reader = connect(), connect()
    subscription = reader.subscribe(TOPIC, group="workers", partitions=1, max_attempts=None, backoff=0.0)
    bus.publish_many(TOPIC, range(4), key=lambda _number: "same")
    first, second, third, fourth = (next_of(subscription) for _ in range(4))
    for message in (third, second):
        message.nak(0.0)
    second = next_of(subscription)
    assert second.data == 1
    first.nak(0.0)
    first = next_of(subscription)
    assert first.data == 0
    first.ack()
    assert subscription.get(timeout=0.3) is None, "the second one is in hand"
    second.ack()
    third = next_of(subscription)
    assert third.data == 2
    third.ack()
    fourth.ack()
    assert subscription.get(timeout=0) is None
    assert [queue.entries for queue in bus.queues()] == [0]


def test_acks_and_failures_in_any_order_end_with_everything_done_once(connect: Connect) -> None:
    """Many messages of few keys, taken some at a time, acked and given back at random."""
    chance = random.Random(11)
    bus, reader = connect(), connect()
    subscription = reader.subscribe(TOPIC, group="workers", partitions=2, max_attempts=None, backoff=0.0)
    bus.publish_many(TOPIC, range(300), key=lambda number: f"key-{number % 5}")
    hands: list[zkms.Message] = []
    done: list[int] = []
    while len(done) < 300:
        hands += subscription.fetch(chance.randint(1, 20), timeout=0.05)
        chance.shuffle(hands)
        for message in hands[: chance.randint(0, len(hands))]:
            if chance.random() < 0.3:
                message.nak(0.0)
            else:
                message.ack()
                done.append(message.data)
            hands.remove(message)
    assert sorted(done) == list(range(300))
    assert hands == []
    assert subscription.get(timeout=0) is None
    assert [queue.entries for queue in bus.queues()] == [0, 0]


def test_a_handler_that_gives_a_message_back_and_returns_has_not_acked_it(
    connect: Connect, eventually: Callable[..., None]
) -> None:
    """It comes again, as often as it is given back; and nobody is told of an error."""
    seen: list[int] = []
    errors: list[Exception] = []

    def handle(message: zkms.Message) -> None:
        seen.append(message.attempts)
        if message.attempts < 3:
            message.nak(0.0)

    connect().subscribe(
        TOPIC, handle, group="workers", partitions=1, on_error=lambda error, _message: errors.append(error)
    )
    bus = connect()
    bus.publish(TOPIC, "work", key="same")
    eventually(lambda: sum(queue.entries for queue in bus.queues()) == 0)
    assert seen == [1, 2, 3]
    assert errors == []


def test_a_message_that_was_given_back_cannot_be_acked(connect: Connect) -> None:
    """It is to come again: an ack would take it from whoever gets it."""
    subscription = connect().subscribe(TOPIC, group="workers", partitions=1)
    connect().publish_many(TOPIC, range(2), key=lambda _number: "same")
    first, second = next_of(subscription), next_of(subscription)
    first.nak(60.0)
    with pytest.raises(zkms.LostOwnership, match="given back"):
        first.ack()
    with pytest.raises(zkms.LostOwnership, match="given back"):
        subscription.ack([second, first])
    second.ack()


def test_one_that_never_failed_is_not_overtaken_by_one_that_did(
    connect: Connect, eventually: Callable[..., None]
) -> None:
    """The next owner waits for the first of a key; then comes the second, which is new, before the third."""
    bus = connect()
    with connect() as former:
        subscription = former.subscribe(TOPIC, group="workers", partitions=1, max_attempts=None)
        bus.publish_many(TOPIC, range(3), key=lambda _number: "same")
        first, _second, third = (next_of(subscription) for _ in range(3))
        third.nak(0.0)
        first.nak(3.0)
    done: list[int] = []
    connect().subscribe(TOPIC, lambda message: done.append(message.data), group="workers", max_attempts=None)
    eventually(lambda: len(done) >= 3)
    assert done == [0, 1, 2]
