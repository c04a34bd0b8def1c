"""An entry's messages in the user's hands: it is done with when all of them are."""

from __future__ import annotations

import threading

import pytest

from zkms import AlreadyAcked, Message
from zkms.codec import pack
from zkms.frame import Frame, Packed
from zkms.handover import Handover, unpack


class Done:
    """Counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


def messages(handover: Handover, *data: object) -> list[Message]:
    """A frame's messages, unpacked."""
    frame = Frame("billing", 10, 1.5, [Packed(*pack(value), key=f"k{value}") for value in data])
    unpacked = unpack("users", frame, handover, None, None)
    assert all(isinstance(item, Message) for item in unpacked)
    return [item for item in unpacked if isinstance(item, Message)]


def test_messages_are_numbered_and_carry_what_the_publisher_gave() -> None:
    """Order, number, key, headers, id and time."""
    first, second = messages(Handover(2, Done()), "a", "b")
    assert (first.data, first.seq, first.key, first.id) == ("a", 10, "ka", "billing:10")
    assert (second.data, second.seq, second.id, second.published_at) == ("b", 11, "billing:11", 1.5)
    assert first.headers == {}
    assert first.attempts == 1
    frame = Frame("billing", 1, 0.0, [Packed(*pack(1), headers={"a": "b"}, id="order-7")])
    (given,) = unpack("users", frame, Handover(1, Done()), None, None)
    assert isinstance(given, Message)
    assert (given.id, given.headers, given.topic) == ("order-7", {"a": "b"}, "users")


def test_an_entry_is_done_when_its_last_message_is() -> None:
    """In whatever order, and once."""
    done = Done()
    handover = Handover(3, done)
    first, second, third = messages(handover, 1, 2, 3)
    third.ack()
    first.ack()
    assert done.times == 0
    second.ack()
    assert done.times == 1


def test_a_second_ack_is_an_error() -> None:
    """And does not count twice."""
    done = Done()
    first, _ = messages(Handover(2, done), 1, 2)
    first.ack()
    with pytest.raises(AlreadyAcked, match="billing:10"):
        first.ack()
    assert done.times == 0


def test_finishing_what_the_user_acked_is_harmless() -> None:
    """A handler may ack before it returns; and what was finished for the user may be acked once."""
    done = Done()
    handover = Handover(1, done)
    (message,) = messages(handover, 1)
    handover.finish(message.seq)
    handover.finish(message.seq)
    message.ack()
    assert done.times == 1
    with pytest.raises(AlreadyAcked):
        message.ack()


def test_a_message_that_cannot_be_decoded_does_not_take_the_others_with_it() -> None:
    """Its number and the reason stand in its place."""
    frame = Frame("p", 5, 0.0, [Packed(*pack(1)), Packed("unknown-codec", b""), Packed(*pack("x"))])
    first, second, third = unpack("users", frame, Handover(3, Done()), None, None)
    assert isinstance(first, Message)
    assert isinstance(third, Message)
    assert not isinstance(second, Message)
    assert second[0] == 6
    assert "unknown-codec" in second[1]


def test_acks_from_many_threads_count_once_each() -> None:
    """The entry is done exactly once."""
    done = Done()
    handed = messages(Handover(200, done), *range(200))
    threads = [threading.Thread(target=lambda part: [m.ack() for m in part], args=[handed[i::8]]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert done.times == 1
