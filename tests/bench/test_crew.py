"""The processes of an experiment, and what their figures mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import zkms
from zkms.bench.algorithms import ours
from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.processes.crew import BenchFailed, Crew
from zkms.bench.processes.orders import Publish, Ready
from zkms.errors import Timeout
from zkms.testing import EmbeddedZooKeeper
from zkms.testing.roots import delete_root, new_root


@pytest.fixture
def place(server: EmbeddedZooKeeper) -> Iterator[BenchPlace]:
    """A root of the test's own."""
    root = new_root()
    yield BenchPlace(server.hosts, root)
    delete_root(server.hosts, root)


@pytest.mark.parametrize("algorithm", ["zkms.bench.algorithms.ours", "zkms.bench.algorithms.original"])
def test_every_message_reaches_every_subscriber(algorithm: str, place: BenchPlace, tmp_path: Path) -> None:
    """Three subscribers in two processes, twice: the figures cover from the first publish to the last ack."""
    with Crew(algorithm, place, tmp_path, subscribers=3) as crew:
        assert len(crew.listeners) == 2
        assert len(set(crew.names)) == 3
        for messages in (5, 20):
            outcome = crew.publish(Publish(messages, timeout=60))
            assert 0 < outcome.publish_seconds <= outcome.seconds
            assert outcome.publisher_cpu > 0
            assert outcome.subscriber_memory > 0


def test_threads_and_publishers_share_the_work(place: BenchPlace, tmp_path: Path) -> None:
    """Two publishers with three threads each: as many messages as asked for, though neither divides them."""
    with Crew("zkms.bench.algorithms.ours", place, tmp_path, subscribers=2, publishers=2) as crew:
        assert crew.publish(Publish(31, threads=3, timeout=60)).seconds > 0


@pytest.mark.parametrize(
    "algorithm", ["zkms.bench.algorithms.ours", "zkms.bench.algorithms.original", "zkms.bench.algorithms.floor"]
)
def test_latency_is_of_every_delivery(algorithm: str, place: BenchPlace, tmp_path: Path) -> None:
    """At a fixed rate, one sample for each message and subscriber."""
    with Crew(algorithm, place, tmp_path, subscribers=1, tally="time") as crew:
        outcome = crew.publish(Publish(20, rate=200, timeout=60))
    assert len(outcome.latencies) == 20
    assert min(outcome.latencies) > 0


def test_a_backlog_waits_until_it_is_released(place: BenchPlace, tmp_path: Path) -> None:
    """Published while the subscriber is held back, drained afterwards, and that again."""
    with Crew("zkms.bench.algorithms.ours", place, tmp_path, subscribers=1, tally="hold") as crew:
        for _ in range(2):
            outcome = crew.pile_up(Publish(500, timeout=60))
            assert outcome.seconds > 0


def test_messages_packed_by_hand_are_counted_one_by_one(place: BenchPlace, tmp_path: Path) -> None:
    """1,000 messages in bodies of 256, and the last of what is left."""
    with Crew("zkms.bench.algorithms.ours", place, tmp_path, subscribers=1, tally="unpack") as crew:
        assert crew.publish(Publish(1000, pack=256, timeout=60)).seconds > 0


def test_what_is_not_acked_is_not_over(place: BenchPlace) -> None:
    """The clock stops at the last ack: a subscriber that does not ack keeps it from stopping."""
    with zkms.connect(place.address, place.root) as bus:
        sub = bus.subscribe(place.topic, ack="manual")
        publisher = ours.publisher(place)
        publisher.publish([b"x"] * 10)
        messages = sub.fetch(10, timeout=30)
        assert len(messages) == 10
        with pytest.raises(Timeout, match="not acked"):
            publisher.settle(0.5)
        for message in messages:
            message.ack()
        assert publisher.settle(30) > 0
        publisher.close()


def test_a_process_that_fails_says_why_and_takes_the_others_along(place: BenchPlace, tmp_path: Path) -> None:
    """The reason is that of the process, and none of them is left."""
    crew = Crew("no.such.algorithm", place, tmp_path, subscribers=2)
    with pytest.raises(BenchFailed, match=r"subscriber process 1: ModuleNotFoundError: No module named 'no'"):
        crew.__enter__()
    assert [process._process.returncode for process in crew.listeners] == [-9, -9]


def test_a_process_that_dies_is_told(place: BenchPlace, tmp_path: Path) -> None:
    """Killed in the middle: an error that names it."""
    with Crew("zkms.bench.algorithms.original", place, tmp_path, subscribers=1) as crew:
        (process,) = crew.listeners
        process._process.kill()
        with pytest.raises(BenchFailed, match="subscriber process 1 has ended by itself"):
            process.answer(Ready, 30)
        crew.listeners.clear()
