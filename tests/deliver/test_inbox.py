"""The buffer between reader and user: bounded, in order, and nobody waits for ever."""

from __future__ import annotations

import threading
import time

from zkms.deliver.inbox import MAX_BYTES, Fetched, Gap, Inbox, Marker
from zkms.tree.entry import Entry


def fetched(sequence: int, messages: int = 1, size: int = 10) -> Fetched:
    """An entry of a queue."""
    return Fetched(
        Entry(sequence, f"f.{messages}.{size}.{sequence:010d}", messages, size), f"/q/{sequence}", b"x" * size
    )


class Reader:
    """Counts how often it is told of room."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_items_come_out_in_the_order_they_went_in() -> None:
    """Messages and gaps alike."""
    inbox = Inbox(10, Reader())
    items = [fetched(0), Marker(Gap("t", "s", "why")), fetched(1)]
    for item in items:
        inbox.put(item)
    assert [inbox.take(0) for _ in items] == items


def test_prefetch_bounds_the_messages_at_hand() -> None:
    """What is here and what is asked for count together; an entry counts for all its messages."""
    inbox = Inbox(10, Reader())
    assert inbox.room(0, 0)
    inbox.put(fetched(0, messages=6))
    assert inbox.room(3, 0)
    assert not inbox.room(4, 0)
    inbox.take(0)
    assert inbox.room(4, 0)


def test_bytes_are_bounded_too() -> None:
    """Few large messages must not fill the memory."""
    inbox = Inbox(1000, Reader())
    inbox.put(fetched(0, size=MAX_BYTES - 100))
    assert inbox.room(0, 99)
    assert not inbox.room(0, 100)


def test_an_entry_larger_than_the_prefetch_still_gets_through() -> None:
    """Else it would block its queue for ever."""
    inbox = Inbox(1, Reader())
    assert inbox.room(0, 0)
    inbox.put(fetched(0, messages=256))
    assert not inbox.room(0, 0)
    assert inbox.take(0) is not None
    assert inbox.room(0, 0)


def test_a_reader_that_was_refused_is_told_of_room_once_half_is_free() -> None:
    """Not at every message, and always before the inbox runs dry."""
    reader = Reader()
    inbox = Inbox(10, reader)
    for sequence in range(10):
        inbox.put(fetched(sequence))
    assert not inbox.room(0, 0)
    for _ in range(4):
        inbox.take(0)
    assert reader.calls == 0
    inbox.take(0)
    assert reader.calls == 1
    inbox.take(0)
    assert reader.calls == 1, "it has been told"


def test_a_reader_that_was_refused_because_of_bytes_is_told_as_well() -> None:
    """However few the messages are."""
    reader = Reader()
    inbox = Inbox(2, reader)
    inbox.put(fetched(0, size=MAX_BYTES))
    assert not inbox.room(0, 0)
    inbox.take(0)
    assert reader.calls == 1
    assert inbox.room(0, 0)


def test_take_waits_for_its_time_and_no_longer() -> None:
    """None after the time-out; 0 looks once."""
    inbox = Inbox(10, Reader())
    assert inbox.take(0) is None
    began = time.monotonic()
    assert inbox.take(0.05) is None
    assert time.monotonic() - began >= 0.05


def test_take_wakes_when_something_comes() -> None:
    """Without polling."""
    inbox = Inbox(10, Reader())
    threading.Timer(0.05, inbox.put, [fetched(7)]).start()
    item = inbox.take(10)
    assert isinstance(item, Fetched)
    assert item.entry.sequence == 7


def test_closing_wakes_everybody_who_waits() -> None:
    """And what was left can be dropped or taken."""
    inbox = Inbox(10, Reader())
    results: list[object] = []
    threads = [threading.Thread(target=lambda: results.append(inbox.take(None))) for _ in range(3)]
    for thread in threads:
        thread.start()
    inbox.close(discard=True)
    for thread in threads:
        thread.join(10)
    assert results == [None, None, None]
    left = Inbox(10, Reader())
    left.put(fetched(1))
    left.close(discard=False)
    assert left.take(None) is not None
    assert left.take(None) is None
