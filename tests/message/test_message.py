"""An entry's messages in the user's hands: it is done with when all of them are."""

from __future__ import annotations

import threading

import pytest

from zkms import AlreadyAcked, Message
from zkms.deliver.inbox import Fetched
from zkms.message import frame as frames
from zkms.message.decode import DecodedEntry, Decoder, Undecodable
from zkms.tree.entry import Entry


class Done:
    """Counts."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, path: str) -> None:
        assert path == "/queue/entry"
        self.times += 1


def unpack(done: Done, packed: list[frames.Packed], type: object = None) -> DecodedEntry:
    """A frame of billing's from number 10 on, unpacked for a subscriber of users."""
    raw = frames.encode("billing", 10, 1.5, packed)
    return Decoder("users", type, None).decode(Fetched(Entry(0, "entry"), "/queue/entry", raw), done)


def messages(done: Done, *data: object) -> list[Message]:
    """Such messages, with keys."""
    items = list(unpack(done, [frames.pack(value, f"k{value}") for value in data]).items)
    assert all(isinstance(item, Message) for item in items)
    return [item for item in items if isinstance(item, Message)]


def test_messages_are_numbered_and_carry_what_the_publisher_gave() -> None:
    """Order, number, key, headers, id and time."""
    first, second = messages(Done(), "a", "b")
    assert (first.data, first.seq, first.key, first.id) == ("a", 10, "ka", "billing:10")
    assert (second.data, second.seq, second.id, second.published_at) == ("b", 11, "billing:11", 1.5)
    assert first.headers == {}
    assert first.attempts == 1
    (given,) = unpack(Done(), [frames.pack(1, None, {"a": "b"}, "order-7")]).items
    assert isinstance(given, Message)
    assert (given.id, given.headers, given.topic, given.producer) == ("order-7", {"a": "b"}, "users", "billing")
    assert repr(given) == "<Message order-7 on 'users'>"


def test_an_entry_is_done_when_its_last_message_is() -> None:
    """In whatever order, and once."""
    done = Done()
    first, second, third = messages(done, 1, 2, 3)
    third.ack()
    first.ack()
    assert done.times == 0
    second.ack()
    assert done.times == 1


def test_a_second_ack_is_an_error() -> None:
    """And does not count twice."""
    done = Done()
    first, _ = messages(done, 1, 2)
    first.ack()
    with pytest.raises(AlreadyAcked, match="billing:10"):
        first.ack()
    assert done.times == 0


def test_finishing_what_the_user_acked_is_harmless() -> None:
    """A handler may ack before it returns; and what was finished for the user may be acked once."""
    done = Done()
    (message,) = messages(done, 1)
    message.entry.finish()
    message.entry.finish()
    message.ack()
    assert done.times == 1
    with pytest.raises(AlreadyAcked):
        message.ack()


def test_a_message_that_cannot_be_decoded_does_not_take_the_others_with_it() -> None:
    """It stands in its place with the reason, and needs no ack."""
    done = Done()
    unpacked = unpack(done, [frames.pack(1), frames.pack("x"), frames.pack(3)], type=int)
    first, second, third = unpacked.items
    assert isinstance(second, Undecodable)
    assert second.index == 1
    assert "not a int" in second.error.reason
    assert isinstance(first, Message)
    assert isinstance(third, Message)
    first.ack()
    third.ack()
    assert done.times == 0
    unpacked.entry.skip(second.index)
    assert done.times == 1


def test_acks_from_many_threads_count_once_each() -> None:
    """The entry is done exactly once."""
    done = Done()
    handed = messages(done, *range(200))
    threads = [threading.Thread(target=lambda part: [m.ack() for m in part], args=[handed[i::8]]) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert done.times == 1
