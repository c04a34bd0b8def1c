"""What the next reader of a subscription finds is `redelivered` if it may have been handed over before, else not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from tests.support.oracle import audit, exported
from tests.support.trails import read
from zkms.replay.cursor import Cursor
from zkms.server.server import Server

HOLDER = """
import signal, sys, zkms
hosts, root, trail = sys.argv[1:]
bus = zkms.connect(hosts, root=root, cleaner=False, trail=trail, client_id="first", session_timeout=4)
subscription = bus.subscribe("users", name="audit")
print([message.data for message in subscription.fetch(2, timeout=30)], flush=True)
signal.pause()
"""


def told(trail: Path, event: str, reader: str) -> list[int]:
    """The numbers of the messages that one reader's trail says this of, in order."""
    events = [each for path in sorted(trail.glob(f"{reader}-*")) for each in read(path) if each.event == event]
    return [(each.seq or 0) + place for each in events for place in each.places or range(each.n or 0)]


def take(subscription: Any, count: int) -> list[zkms.Message]:
    """So many messages, not acked."""
    messages: list[zkms.Message] = []
    while len(messages) < count:
        some = subscription.fetch(count - len(messages), timeout=30)
        assert some
        messages += some
    return messages


def close(*buses: zkms.Bus) -> None:
    """So that all is written."""
    for bus in buses:
        bus.close()


@pytest.mark.parametrize("options", [{"name": "audit"}, {"group": "audit", "partitions": 1}], ids=["durable", "group"])
def test_what_nobody_was_handed_before_is_delivered(
    connect: Connect, trail: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    """One reader acks one, has one in hand and leaves; what it did not get comes to the next one for the first time."""
    writer, first = connect(client_id="writer"), connect(client_id="first")
    subscription = first.subscribe("users", **options)
    for number in range(1, 6):
        writer.publish("users", number)
    take(subscription, 2)[0].ack()
    first.close()
    writer.publish("users", 6)
    second = connect(client_id="second")
    for message in take(second.subscribe("users", **options), 5):
        message.ack()
    close(second, writer)
    assert told(trail, "delivered", "first") == [1, 2]
    assert told(trail, "redelivered", "second") == [2]
    assert told(trail, "delivered", "second") == [3, 4, 5, 6]
    assert audit(exported(trail, tmp_path / "exported")) == set()


def test_an_urgent_message_does_not_make_those_before_it_redelivered(connect: Connect, trail: Path) -> None:
    """A queue is read by priority: that a young one was handed over says nothing of the older ones."""
    writer, first = connect(client_id="writer"), connect(client_id="first")
    first.subscribe("users", name="audit").close()
    for number, priority in ((1, 0), (2, 0), (3, 5), (4, 5)):
        writer.publish("users", number, priority=priority)
    subscription = first.subscribe("users", name="audit")
    assert take(subscription, 1)[0].data == 3
    first.close()
    second = connect(client_id="second")
    take(second.subscribe("users", name="audit"), 4)
    close(second, writer)
    assert told(trail, "redelivered", "second") == [3]
    assert told(trail, "delivered", "second") == [4, 1, 2]


def test_after_a_kill_only_what_was_there_by_then_is_redelivered(
    connect: Connect, trail: Path, tmp_path: Path, zookeeper: Server, zookeeper_root: str, eventually: Eventually
) -> None:
    """Nobody can tell what a killed reader had in its hands, but nothing that was published after its end."""
    writer = connect(client_id="writer")
    writer.subscribe("users", name="audit").close()
    for number in range(1, 5):
        writer.publish("users", number)
    command = [sys.executable, "-c", HOLDER, zookeeper.hosts, zookeeper_root, str(trail)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[1, 2]\n"
        os.kill(process.pid, signal.SIGKILL)
    members = writer.parts.tree.members("audit", "users")
    eventually(lambda: not writer.parts.session.children(members)[0], timeout=60)
    for number in range(5, 8):
        writer.publish("users", number)
    for reader, acks in (("second", 1), ("third", 6)):  # also where the next one leaves before it has read all of it
        bus = connect(client_id=reader)
        for message in take(bus.subscribe("users", name="audit"), acks):
            message.ack()
        bus.close()
    writer.close()
    assert told(trail, "redelivered", "second") == [1]
    assert told(trail, "redelivered", "third") == [2, 3, 4]
    assert told(trail, "delivered", "third") == [5, 6, 7]
    assert audit(exported(trail, tmp_path / "exported")) == set()


def test_what_a_living_reader_is_robbed_of_may_have_been_handed_over(connect: Connect, trail: Path) -> None:
    """All that was there when it was taken over; what comes later is new."""
    writer, first, second = connect(client_id="writer"), connect(client_id="first"), connect(client_id="second")
    subscription = first.subscribe("users", name="audit")
    for number in (1, 2):
        writer.publish("users", number)
    take(subscription, 1)
    robber = second.subscribe("users", name="audit", takeover=True)
    take(robber, 2)
    writer.publish("users", 3)
    take(robber, 1)
    close(first, second, writer)
    assert told(trail, "redelivered", "second") == [1, 2]
    assert told(trail, "delivered", "second") == [3]


def test_a_reader_without_a_trail_leaves_word_for_one_that_has_one(connect: Connect, trail: Path) -> None:
    """What may have been handed over stands with the subscription, and not in anybody's memory."""
    writer, first = connect(client_id="writer"), connect(client_id="first", trail=None)
    subscription = first.subscribe("users", name="audit")
    for number in (1, 2, 3):
        writer.publish("users", number)
    take(subscription, 2)
    first.close()
    second = connect(client_id="second")
    take(second.subscribe("users", name="audit"), 3)
    close(second, writer)
    assert told(trail, "redelivered", "second") == [1, 2]
    assert told(trail, "delivered", "second") == [3]


def test_what_a_reader_by_place_takes_over_may_have_been_handed_over(
    connect: Connect, trail: Path, tmp_path: Path
) -> None:
    """A stream that reads on where a program left off tells apart what that one had in its hands."""
    writer, first = connect(client_id="writer"), connect(client_id="first")
    subscription = first.subscribe("users", name="audit")
    for number in (1, 2, 3):
        writer.publish("users", number)
    take(subscription, 1)
    first.close()
    second = connect(client_id="second")
    cursor = Cursor(second.parts, "users", "audit")
    cursor.open()
    cursor.ack(cursor.end())
    cursor.close()
    close(second, writer)
    assert told(trail, "redelivered", "second") == [1]
    assert told(trail, "delivered", "second") == [2, 3]
    assert told(trail, "acked", "second") == [1, 2, 3]
    assert audit(exported(trail, tmp_path / "exported")) == set()
