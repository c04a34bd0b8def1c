"""`python -m benchmarks.backlog`: what a deep backlog does to ZooKeeper, packed by zkms or as a znode for each message.

Curator's technical note 4 says why ZooKeeper makes a bad queue: packets of 1 MB, slow starts with many znodes, queues
too large to be read, slow with many children, all of it in memory. So for each backlog: what the server keeps, how
long it needs after kill -9, when a reader that comes then has its first message, and what a write costs meanwhile.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click
from kazoo.client import KazooClient

import zkms
from zkms.bench.processes.purge import fill
from zkms.server.embedded import EmbeddedZooKeeper
from zkms.server.words import ask
from zkms.tree.records import MOST_BYTES

PAYLOAD = b"x" * 100
PATIENCE = 600.0
WRITES = 200
HEAP = "3g"


@dataclass
class Backlog:
    """What was found, with so many messages waiting."""

    kept_as: str
    messages: int
    znodes: int
    bytes_a_message: float
    restart_s: float
    first_s: float
    write_ms: float

    def row(self) -> str:
        """A line of the table."""
        first = f"{self.first_s * 1000:,.0f} ms"
        size = f"{self.bytes_a_message:,.0f}" if self.messages else "-"
        return (
            f"| {self.messages:,} | {self.kept_as} | {self.znodes:,} | {size} | {self.restart_s:.1f} s | {first} | "
            f"{self.write_ms:.2f} ms |"
        )


def packed(hosts: str, messages: int) -> Callable[[], object]:
    """Published with publish_many() for a durable subscription that is away; returns what reads the first one."""
    with zkms.connect(hosts, cleaner=False, request_timeout=60.0) as bus:
        bus.subscribe("jobs", name="away", limit=2 * messages + 1, max_bytes=MOST_BYTES).close()
        if messages:
            bus.publish_many("jobs", (PAYLOAD for _ in range(messages)), timeout=PATIENCE)

    def first() -> object:
        with zkms.connect(hosts, cleaner=False, request_timeout=60.0) as bus:
            sub = bus.subscribe("jobs", name="away")
            if not messages:
                bus.publish("jobs", PAYLOAD)
            return sub.get(timeout=PATIENCE)

    return first


def a_znode_each(hosts: str, messages: int) -> Callable[[], object]:
    """As queues on ZooKeeper mostly are: who wants the first has to list them all."""
    with _client(hosts) as kazoo:
        kazoo.ensure_path("/queue")
    fill(hosts, "/queue/m-", messages)

    def first() -> object:
        with _client(hosts) as kazoo:
            return kazoo.get(f"/queue/{min(kazoo.get_children('/queue'))}")

    return first


def measure(kept_as: str, make: Callable[[str, int], Callable[[], object]], messages: int) -> Backlog:
    """On a server of its own."""
    with EmbeddedZooKeeper(heap=HEAP, short_lived=False, timeout=PATIENCE) as server:
        znodes, size = _counts(server)
        first = make(server.hosts, messages)
        now_znodes, now_size = _counts(server)
        write_ms = _write(server.hosts)
        server.kill(0)
        began = time.monotonic()
        server.restart(0)
        restarted = time.monotonic()
        if first() is None:
            raise click.ClickException(f"of {messages:,} messages none came")
        came = time.monotonic()
    kept = (now_size - size) / max(1, messages)
    return Backlog(kept_as, messages, now_znodes - znodes, kept, restarted - began, came - restarted, write_ms)


def _counts(server: EmbeddedZooKeeper) -> tuple[int, int]:
    said = ask("127.0.0.1", server.ports[0], "mntr", timeout=60.0)
    found = [re.search(rf"^zk_{name}\s+(\d+)", said, re.MULTILINE) for name in ("znode_count", "approximate_data_size")]
    znodes, size = (int(each[1]) if each else 0 for each in found)
    return znodes, size


def _write(hosts: str) -> float:
    """The median of some creates, in milliseconds."""
    took = []
    with _client(hosts) as kazoo:
        kazoo.ensure_path("/writes")
        for _ in range(WRITES):
            began = time.perf_counter()
            kazoo.create("/writes/m-", PAYLOAD, sequence=True)
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


@contextmanager
def _client(hosts: str) -> Iterator[KazooClient]:
    kazoo = KazooClient(hosts, timeout=60.0)
    kazoo.start(timeout=60)
    try:
        yield kazoo
    finally:
        kazoo.stop()
        kazoo.close()


@click.command()
@click.option("--messages", type=click.IntRange(1), default=1_000_000, show_default=True, help="The deepest backlog.")
def main(messages: int) -> None:
    """Measure backlogs of none, a tenth of the messages, and all of them."""
    print("| waiting | kept as | znodes | bytes a message | start after kill -9 | first message | a write meanwhile |")
    print("|---|---|---|---|---|---|---|")
    for count in (0, messages // 10, messages):
        print(measure("zkms, packed", packed, count).row(), flush=True)
    for count in (messages // 10, messages):
        print(measure("a znode each", a_znode_each, count).row(), flush=True)


if __name__ == "__main__":
    main()
