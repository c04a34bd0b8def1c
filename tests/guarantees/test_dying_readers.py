"""Readers that are killed, frozen, or die of what they read."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

import zkms
from tests.guarantees.conftest import Run
from tests.support.buses import Connect, Eventually
from zkms.consume.dispatcher import Dispatcher

pytestmark = pytest.mark.on_one_server

TOPIC = "jobs"
KILLS = int(os.environ.get("ZKMS_KILLS", "6"))
"""How often a reader is killed: a hundred times takes minutes, and is for a person who asks for it."""


def kill_readers(
    bus: zkms.Bus, run: Run, file: Path, kills: int, eventually: Eventually
) -> tuple[list[int], list[int]]:
    """Publish and read, the reader killed again and again at any moment; what was got, and what was acked."""
    chance = random.Random(7)
    file.touch()
    bus.subscribe(TOPIC, name="audit").close()
    published = 0
    reader = run("reader.py", TOPIC, file)
    for _ in range(kills):
        size, more = file.stat().st_size, chance.randint(1, 600)
        bus.publish_many(TOPIC, range(published, published + 40))
        published += 40
        eventually(lambda: file.stat().st_size >= size + more or not waiting(bus), timeout=60)  # noqa: B023
        reader.kill()
        reader.wait()
        reader = run("reader.py", TOPIC, file)
    eventually(lambda: not waiting(bus), timeout=60)
    eventually(lambda: file.read_text().endswith(f"acked {published - 1}\n"))
    lines = [line.split() for line in file.read_text().splitlines()]
    got = [int(line[1]) for line in lines if line[0] == "got"]
    acked = [int(line[1]) for line in lines if line[0] == "acked"]
    assert set(got) == set(range(published))
    return got, acked


def waiting(bus: zkms.Bus) -> int:
    """Entries in the queue."""
    return sum(queue.entries for queue in bus.queues())


def test_a_durable_subscriber_killed_at_any_moment_acks_each_message_once_and_in_order(
    connect: Connect, run: Run, tmp_path: Path, eventually: Eventually
) -> None:
    """Acked ones never come again; one that was got and not acked comes again, at the same place."""
    got, acked = kill_readers(connect(), run, tmp_path / "reader", KILLS, eventually)
    assert acked == sorted(set(acked)), "in order, none of them twice"
    first = list(dict.fromkeys(got))
    assert first == sorted(first), "in order"
    unwritten = set(got) - set(acked)
    assert len(unwritten) <= KILLS, "killed between the ack and the line that tells of it, once each time at most"
    assert len(got) - len(set(got)) <= KILLS, "repeated: only what was in hand when a reader was killed"


def test_a_frozen_member_cannot_ack_and_is_told_so(connect: Connect, run: Run, eventually: Eventually) -> None:
    """SIGSTOP past its session, then SIGCONT: the message is another's by then."""
    bus = connect()
    bus.create_group(TOPIC, "workers", partitions=1)
    bus.publish(TOPIC, "work")
    zombie = run("zombie.py", TOPIC)
    assert zombie.stdout is not None
    assert zombie.stdout.readline() == "got work\n"
    zombie.send_signal(signal.SIGSTOP)
    subscription = connect().subscribe(TOPIC, group="workers")
    message = subscription.get(timeout=60)
    assert message is not None
    assert message.data == "work"
    zombie.send_signal(signal.SIGCONT)
    assert zombie.stdin is not None
    zombie.stdin.write("\n")
    zombie.stdin.flush()
    assert zombie.stdout.readline() == "LostOwnership\n"
    message.ack()
    assert waiting(bus) == 0


def keep_running(run: Run, how: str, bus: zkms.Bus, eventually: Eventually, deaths: int) -> list[str]:
    """Start a member again each time that it dies, so often at the most; what they have handled."""
    handled: list[str] = []
    for _ in range(deaths):
        process = run("suicidal.py", TOPIC, how)
        eventually(lambda: process.poll() is not None or not waiting(bus), timeout=60)  # noqa: B023
        process.kill()
        handled += process.communicate()[0].split()
        if not waiting(bus):
            break
    return handled


@pytest.mark.parametrize("how", ["handler", "get"])
def test_a_message_that_kills_its_readers_ends_as_a_dead_letter(
    connect: Connect, run: Run, eventually: Eventually, how: str
) -> None:
    """It does not take the group down for ever, and those before and after it are not lost."""
    bus = connect()
    bus.create_group(TOPIC, "workers", partitions=1)
    bus.publish_many(TOPIC, ["before", "deadly", "after", "later"])
    handled = keep_running(run, how, bus, eventually, deaths=8)
    assert waiting(bus) == 0
    assert len(bus.parts.session.children(bus.parts.tree.dead_queue("workers", TOPIC))[0]) == 1
    assert set(handled) == {"before", "after", "later"}


def test_without_reservations_it_kills_its_readers_for_ever(connect: Connect, bus_without_care: list[int]) -> None:
    """A mutation: nobody notes that a message is about to be given out, so nobody knows which one it was."""
    bus = connect()
    bus.create_group(TOPIC, "workers", partitions=1)
    bus.publish(TOPIC, "deadly")
    attempts = []
    for _ in range(5):
        reader = connect()
        message = reader.subscribe(TOPIC, group="workers").get(timeout=30)
        assert message is not None
        attempts.append(message.attempts)
        reader.parts.session.close()  # gone with all that it knew, as a process that died
    assert attempts == [1] * 5
    assert bus_without_care


@pytest.fixture
def bus_without_care(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Dispatchers that note nothing before they deliver; a list of how often one would have."""
    left_out: list[int] = []

    def careless(_dispatcher: Dispatcher, message: zkms.Message) -> None:
        left_out.append(message.index)

    monkeypatch.setattr(Dispatcher, "_note_delivery", careless)
    return left_out


def test_with_reservations_the_third_reader_to_die_is_the_last(connect: Connect, eventually: Eventually) -> None:
    """The same without the mutation: after three it is a dead letter, and the fourth reader gets the next message."""
    bus = connect()
    bus.create_group(TOPIC, "workers", partitions=1)
    bus.publish_many(TOPIC, ["deadly", "next"])
    got = []
    while "next" not in got:
        reader = connect()
        message = reader.subscribe(TOPIC, group="workers").get(timeout=30)
        assert message is not None
        got.append(message.data)
        assert len(got) <= 6
        reader.parts.session.close()
    assert got[:-1] == ["deadly"] * (len(got) - 1)
