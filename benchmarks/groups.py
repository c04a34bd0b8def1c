"""`python -m benchmarks.groups`: work queues and durable subscriptions, measured side by side in one run.

Four members of a group with a handler each, against four takers of kazoo's LockingQueue; and a durable subscription
read by `fetch(500)` and acked batch by batch, waited for or not, against a live one, published by another process.
Messages of 100 bytes, one embedded ZooKeeper. In every round the contestants take turns; medians are shown.
"""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event

import click
from kazoo.client import KazooClient
from kazoo.recipe.queue import LockingQueue

import zkms
from zkms.server.embedded import EmbeddedZooKeeper

MEMBERS = 4
PAYLOAD = b"x" * 100
BATCH = 500
DEPTH = 100
"""Messages that a LockingQueue is given in one transaction."""
PATIENCE = 120.0
_context = multiprocessing.get_context("spawn")
_roots: Iterator[int] = iter(range(1_000_000))


class Late(Exception):
    """A contestant has not done its work in time."""


def group(hosts: str, messages: int) -> float:
    """Messages a second, published, handled and acked by the members of a group."""
    root = f"/groups-{next(_roots)}"
    handled = [0] * MEMBERS

    def counter(member: int) -> Callable[[zkms.Message], None]:
        def count(_message: zkms.Message) -> None:
            handled[member] += 1

        return count

    buses = [zkms.connect(hosts, root=root, cleaner=False) for _ in range(MEMBERS + 1)]
    try:
        members = [bus.subscribe("jobs", counter(i), group="workers") for i, bus in enumerate(buses[1:])]
        _until(lambda: all(len(member.partitions) == 8 // MEMBERS for member in members))
        began = time.perf_counter()
        buses[0].publish_many("jobs", (PAYLOAD for _ in range(messages)), timeout=PATIENCE)
        _until(lambda: sum(handled) >= messages and not any(queue.entries for queue in buses[0].queues()))
        return messages / (time.perf_counter() - began)
    finally:
        for bus in buses:
            bus.close()


def locking_queue(hosts: str, messages: int) -> float:
    """The same with kazoo's LockingQueue: get() locks a message, consume() removes it."""
    path = f"/locking-queue-{next(_roots)}"
    clients = [KazooClient(hosts) for _ in range(MEMBERS + 1)]
    taken = [0] * MEMBERS
    stop = threading.Event()

    def take(member: int) -> None:
        queue = LockingQueue(clients[member + 1], path)
        while not stop.is_set():
            if queue.get(timeout=0.2) is not None:
                queue.consume()
                taken[member] += 1

    for client in clients:
        client.start()
    takers = [threading.Thread(target=take, args=(member,)) for member in range(MEMBERS)]
    for taker in takers:
        taker.start()
    try:
        queue = LockingQueue(clients[0], path)
        began = time.perf_counter()
        for start in range(0, messages, DEPTH):
            queue.put_all([PAYLOAD] * min(DEPTH, messages - start))
        _until(lambda: sum(taken) >= messages)
        return messages / (time.perf_counter() - began)
    finally:
        stop.set()
        for taker in takers:
            taker.join()
        for client in clients:
            client.stop()
            client.close()


def live(hosts: str, messages: int) -> float:
    """Messages a second, published and fetched by a live subscription, 500 at a time."""
    return _fetched(hosts, messages, durable=False)


def durable(hosts: str, messages: int) -> float:
    """The same for a durable one, acked as a live one is: nobody waits until that is stored, but for the last batch."""
    return _fetched(hosts, messages, durable=True)


def careful(hosts: str, messages: int) -> float:
    """The same for one whose batches are acked, and that is stored, before the next is fetched."""
    return _fetched(hosts, messages, durable=True, wait=True)


def _publish(hosts: str, root: str, messages: int, ready: Event, go: Event) -> None:
    """In a process of its own, so that publisher and reader do not take turns with one interpreter."""
    with zkms.connect(hosts, root=root, cleaner=False) as bus:
        bus.publish("warm-up", 0, if_nobody="drop")
        ready.set()
        go.wait(PATIENCE)
        bus.publish_many("jobs", (PAYLOAD for _ in range(messages)), timeout=PATIENCE)


def _fetched(hosts: str, messages: int, *, durable: bool, wait: bool = False) -> float:
    root = f"/fetched-{next(_roots)}"
    with zkms.connect(hosts, root=root, cleaner=False) as reader:
        kept = reader.subscribe("jobs", name="audit", limit=2 * messages) if durable else None
        subscription = kept or reader.subscribe("jobs", limit=2 * messages)
        ready, go = _context.Event(), _context.Event()
        publishing = _context.Process(target=_publish, args=(hosts, root, messages, ready, go), daemon=True)
        publishing.start()
        if not ready.wait(PATIENCE):
            raise Late("the publisher has not started")
        go.set()
        began = time.perf_counter()
        got = 0
        while got < messages:
            batch = subscription.fetch(BATCH, timeout=PATIENCE)
            if not batch:
                raise Late(f"{got} of {messages} messages were fetched")
            got += len(batch)
            if kept is not None:
                kept.ack(batch, wait=wait or got >= messages)
        seconds = time.perf_counter() - began
        publishing.join()
        return messages / seconds


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise Late(f"not done in {PATIENCE:g} s")
        time.sleep(0.001)


CONTESTANTS = {"group": group, "LockingQueue": locking_queue, "live": live, "durable": durable, "careful": careful}


def compare(hosts: str, messages: int, rounds: int) -> dict[str, float]:
    """The medians, messages a second."""
    shares = {"LockingQueue": max(50, messages // 200)}  # it would take minutes
    found: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for name, contestant in CONTESTANTS.items():  # thrown away: a fresh server is slow until its code is compiled
        contestant(hosts, shares.get(name, messages) // 2)
    for _ in range(rounds):
        for name, contestant in CONTESTANTS.items():
            found[name].append(contestant(hosts, shares.get(name, messages)))
    return {name: statistics.median(rates) for name, rates in found.items()}


@click.command()
@click.option("--messages", type=click.IntRange(1), default=50_000, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
def main(messages: int, rounds: int) -> None:
    """Measure, and print medians and ratios."""
    with EmbeddedZooKeeper() as server:
        rates = compare(server.hosts, messages, rounds)
    for name, rate in rates.items():
        click.echo(f"{name:14}{rate:12,.0f} messages/s")
    click.echo(f"group of {MEMBERS} against LockingQueue: {rates['group'] / rates['LockingQueue']:.0f} times as many")
    click.echo(f"durable fetch({BATCH}) against live: {rates['durable'] / rates['live']:.2f} times as many")
    click.echo(f"the same, each batch's acks waited for: {rates['careful'] / rates['live']:.2f} times as many")


if __name__ == "__main__":
    main()
