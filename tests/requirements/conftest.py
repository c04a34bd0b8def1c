"""What the tests of the requirements share: buses, and workers that write down what they get."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zkms
from tests.support.buses import Buses, Connect, Eventually
from zkms.server.server import Server

Crew = Callable[..., list["Worker"]]


@pytest.fixture
def connect(zookeeper: Server, zookeeper_root: str) -> Iterator[Connect]:
    """Connect buses under the test's root, closed after it."""
    buses = Buses(zookeeper.hosts, zookeeper_root, cleaner=False)
    yield buses
    buses.close_as_far_as_possible()


class Worker:
    """A member of a group with a bus of its own, and all that it got, in order."""

    def __init__(self, bus: zkms.Bus, topic: str, group: str, work: Callable[[zkms.Message], None], **options: Any):
        """Join."""
        self.bus = bus
        self.got: list[Any] = []
        self.keys: list[str | None] = []
        self._work = work
        self._lock = threading.Lock()
        self.subscription = bus.subscribe(topic, self._hear, group=group, **options)

    def _hear(self, message: zkms.Message) -> None:
        self._work(message)
        with self._lock:
            self.got.append(message.data)
            self.keys.append(message.key)


@pytest.fixture
def crew(connect: Connect, eventually: Eventually) -> Crew:
    """Members of a group, each with a bus of its own, once every one of them has its share of the partitions."""

    def assemble(
        count: int,
        topic: str,
        partitions: int = 2,
        work: Callable[[zkms.Message], None] = lambda _message: None,
        **options: Any,
    ) -> list[Worker]:
        options = {"group": "workers", "partitions": partitions, **options}
        workers = [Worker(connect(), topic, work=work, **options) for _ in range(count)]
        least = partitions // count

        def shared() -> bool:
            shares = [worker.subscription.partitions for worker in workers]
            return all(len(share) >= least for share in shares) and sum(map(len, shares)) == partitions

        eventually(shared, what="an even share for every member")
        return workers

    return assemble


def publish_blocks(bus: zkms.Bus, topic: str, keys: list[str], each: int) -> None:
    """So many messages for each key, in turns: [key, 0], [key, 1], ..."""
    bus.publish_many(topic, [[key, number] for number in range(each) for key in keys], key=lambda data: str(data[0]))


def block(key: str, *numbers: int) -> list[list[object]]:
    """The messages of one key."""
    return [[key, number] for number in numbers]
