"""What was measured: one row an experiment, and the document that holds them all."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

R = TypeVar("R")
MB = 1_000_000


class Throughput(msgspec.Struct, kw_only=True):
    """As many messages as possible, from the first publish to the last subscriber's ack of the last message."""

    algorithm: str
    subscribers: int
    publishers: int = 1
    threads: int = 0
    """Of plain publish() in one publisher; 0 for publish_many()."""
    topics: int = 1
    """In the tree; the messages go to one of them."""
    size: int
    messages: int
    seconds: float
    messages_per_s: float
    published_per_s: float
    deliveries_per_s: float
    frame: int
    """Messages that travelled together at the most."""
    requests_per_delivery: float | None
    publisher_cpu_us: float
    """Per delivery, as those that follow."""
    subscriber_cpu_us: float
    server_cpu_us: float | None
    subscriber_memory_mb: float
    """Of the biggest process, at the most."""
    subscriber_bytes: float
    """Per message, by which that process grew at the most."""
    publisher_memory_mb: float
    server_memory_mb: float | None


class Latency(msgspec.Struct, kw_only=True):
    """From the call of publish to the handler's, at a fixed rate. `late` messages count from when they were due."""

    algorithm: str
    subscribers: int
    rate: float
    deliveries: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    late: int
    requests_per_delivery: float | None
    cpu_us: float
    """Of publisher and subscribers, per delivery."""


class Drain(msgspec.Struct, kw_only=True):
    """A backlog, from the moment its reader begins to the ack of the last message."""

    backlog: int
    seconds: float
    messages_per_s: float
    growth_mb: float
    """By which the reader's process grew, at the most, since before the backlog."""


class Purge(msgspec.Struct, kw_only=True):
    """Removing a dead subscriber's queue."""

    algorithm: str
    znodes: int
    seconds: float
    znodes_per_s: float


Row = Throughput | Latency | Drain | Purge


class Target(msgspec.Struct, kw_only=True):
    """Something that is required, and what was measured."""

    work: str
    required: str
    measured: str
    value: float
    met: bool


class Broker(msgspec.Struct, kw_only=True):
    """The metrics to choose a broker by, at so many publishers and consumers."""

    published_per_s: int
    consumed_per_s: int
    message_size: int
    publishers: int
    consumers: int
    persistence: str
    acknowledgement: str


class Machine(msgspec.Struct, kw_only=True):
    """Where it was measured."""

    cores: int
    system: str
    python: str
    zkms: str
    zookeeper: str
    embedded: bool
    persistence: str
    others: str
    """A sentence if others were at work, else empty."""


class Document(msgspec.Struct, kw_only=True):
    """All of a run; what `--json` prints."""

    suite: str
    rounds: int
    seconds: float
    machine: Machine
    throughput: list[Throughput] = []
    latency: list[Latency] = []
    drain: list[Drain] = []
    purge: list[Purge] = []
    broker: list[Broker] = []
    targets: list[Target] = []
    failures: dict[str, str] = {}
    """What could not be measured, and why."""

    def find(self, algorithm: str, subscribers: int, *, threads: int = 0) -> Throughput | None:
        """The throughput with so many subscribers, one publisher and the usual size."""
        for row in self.throughput:
            usual = (row.publishers, row.topics, row.size) == (1, 1, 100)
            if usual and (row.algorithm, row.subscribers, row.threads) == (algorithm, subscribers, threads):
                return row
        return None

    def find_latency(self, algorithm: str, subscribers: int) -> Latency | None:
        """The latency with so many subscribers."""
        wanted = (algorithm, subscribers)
        return next((row for row in self.latency if (row.algorithm, row.subscribers) == wanted), None)


def median(rows: Sequence[R], key: Callable[[R], float]) -> R:
    """The row in the middle: one that was measured, not a mixture."""
    return sorted(rows, key=key)[(len(rows) - 1) // 2]


def percentiles(latencies: Sequence[float]) -> tuple[float, float, float]:
    """p50, p99 and p99.9, in milliseconds."""
    cuts = statistics.quantiles(latencies, n=1000, method="inclusive")
    return cuts[499] * 1000, cuts[989] * 1000, cuts[998] * 1000
