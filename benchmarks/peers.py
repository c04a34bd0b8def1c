"""Who takes part: how to start each one's server, what it needs, and what its user can rely on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks import servers


class Peer(NamedTuple):
    """One messaging system, with its server on this machine."""

    name: str
    module: str
    start: Callable[[Path], AbstractContextManager[str]]
    durability: str
    first: int
    """Messages that its warm-up begins with."""
    command: str = ""
    package: str = ""
    library: str = ""
    packed: bool = True
    """Whether it is also measured with 256 messages packed into one by hand."""

    @property
    def lacks(self) -> str:
        """Why it cannot run here; empty if it can."""
        if self.library and find_spec(self.library) is None:
            return f"the Python package {self.library} is not installed"
        if self.command and servers.missing(self.command):
            return f"{self.command} is not installed"
        return ""


PEERS = (
    Peer(
        "zkms",
        "zkms.bench.algorithms.ours",
        servers.zookeeper,
        "fsync before publish() returns",
        2_000,
        library="pyspark",
        packed=False,
    ),
    Peer(
        "Redis Streams",
        "benchmarks.redis_streams",
        servers.redis,
        "append-only file, appendfsync always",
        1_000,
        "redis-server",
        "redis-server",
        "redis",
    ),
    Peer(
        "RabbitMQ",
        "benchmarks.rabbitmq",
        servers.rabbitmq,
        "durable queues, persistent messages, publisher confirms",
        500,
        "rabbitmq-server",
        "rabbitmq-server",
        "pika",
    ),
    Peer(
        "NATS JetStream",
        "benchmarks.nats_jetstream",
        servers.nats,
        "file storage; the server's default, no fsync before the acknowledgement",
        1_000,
        "nats-server",
        "nats-server",
        "nats",
    ),
    Peer(
        "kazoo LockingQueue",
        "benchmarks.locking_queue",
        servers.zookeeper,
        "fsync before put() returns",
        10,
        library="pyspark",
        packed=False,
    ),
)


def chosen(names: tuple[str, ...]) -> list[Peer]:
    """zkms, and those that were named by a part of their name; all of them if none was."""
    wanted = [name.lower() for name in names]
    return [
        peer for peer in PEERS if peer.name == "zkms" or not wanted or any(name in peer.name.lower() for name in wanted)
    ]
