"""Publishers faster than their readers: everything in ZooKeeper and in memory stays bounded.

One topic has live readers, of which one takes gaps and one gives up its oldest; the other has a durable reader and
pushes back, `QueueFull`, within limits on messages and on bytes. All are far too slow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from verification.soak.cast import Actor, Cast
from verification.soak.meters import Counter
from verification.soak.results import Document
from verification.soak.verdict import BOUNDS, Bound, judge_all
from verification.soak.watcher import Watcher
from zkms.server.embedded import EmbeddedZooKeeper
from zkms.testing.roots import new_root

LIVE, KEPT = "news", "orders"
LIMIT = 20_000
BYTES = 8 * 1024 * 1024
PAUSE = 0.01
"""Seconds that a reader takes for a message."""
STOP = 120.0
ROOM = 4
"""By how much the stored bytes may exceed the queues' limits: publishers' windows, copies, and bodies to be freed."""
Say = Callable[[str], None]


def run(seconds: float, *, every: float = 5.0, say: Say = lambda _text: None) -> Document:
    """Run it for so long, and judge."""
    document = Document(
        scenario="overrun",
        began=time.strftime("%Y-%m-%d %H:%M:%S"),
        seconds=seconds,
        load_before=round(os.getloadavg()[0], 2),
    )
    with EmbeddedZooKeeper(config={"snapCount": 10_000}, heap="512m") as server:
        root = new_root()
        with Cast(server.hosts, root) as cast:
            limits = {"limit": LIMIT, "max_bytes": BYTES}
            readers = [
                cast.start("janitor-1", "janitor"),
                cast.start("listener-gap", "listener", topic=LIVE, pause=PAUSE, **limits),
                cast.start("listener-oldest", "listener", topic=LIVE, pause=PAUSE, overflow="drop-oldest", **limits),
                cast.start("reader-1", "reader", topic=KEPT, subscription="billing", pause=PAUSE, **limits),
            ]
            cast.ready(readers)
            publishers = [
                cast.start("publisher-live", "publisher", topic=LIVE, size=500),
                cast.start("publisher-kept", "publisher", topic=KEPT, size=500),
            ]
            cast.ready(publishers)
            for publisher in publishers:
                publisher.tell(rate=None)
            say(f"two publishers as fast as they can, three readers that take {PAUSE * 1000:g} ms a message")
            with Counter(server.hosts, root) as counter:
                watcher = Watcher(cast, [*readers, *publishers], server, server.hosts)
                document.broken += watcher.watch(seconds, every, counter)
                deadline = time.monotonic() + STOP  # before a queue is full nothing is overrun
                while not cast.total("full", publishers) and time.monotonic() < deadline:
                    document.broken += watcher.watch(1.0, every, counter)
            cast.stop([actor for actor in publishers if actor.alive], STOP)
            _tell(document, watcher, readers, publishers)
    return document


def _tell(document: Document, watcher: Watcher, readers: list[Actor], publishers: list[Actor]) -> None:
    document.samples = samples = watcher.samples
    # What is full goes up and down by whole budgets: the bounds below are on its size, these on its slope.
    bounds = {**BOUNDS, "znodes": Bound(0.5, 2_000), "queued": Bound(0.5, 2_000), "data_bytes": Bound(0.5, BYTES)}
    document.judgements = judge_all(samples, bounds)
    live, kept = publishers
    by_name = {actor.name: actor.counts for actor in readers}
    facts = document.facts
    facts["stored for live readers"] = int(live.counts.get("published", 0))
    facts["handled by the one that takes gaps"] = int(by_name["listener-gap"].get("received", 0))
    facts["gaps that it was told of"] = int(by_name["listener-gap"].get("gaps", 0))
    facts["handled by the one that drops its oldest"] = int(by_name["listener-oldest"].get("received", 0))
    facts["stored for the durable reader"] = int(kept.counts.get("published", 0))
    facts["refused, QueueFull"] = int(kept.counts.get("full", 0))
    facts["handled by the durable reader"] = int(by_name["reader-1"].get("received", 0))
    facts["entries in queues at most"] = max(sample.queued for sample in samples)
    facts["znodes at most"] = max(sample.server.get("znodes", 0) for sample in samples)
    most = max(sample.server.get("data_bytes", 0) for sample in samples)
    facts["bytes in ZooKeeper at most"] = most
    for name in ("publisher-live", "publisher-kept", "listener-gap", "listener-oldest", "reader-1"):
        sizes = [s.processes[name].rss_mb for s in samples if name in s.processes]
        facts[f"{name}: memory at most, MB"] = max(sizes, default=0.0)
    broken = document.broken
    if most > ROOM * 3 * BYTES:
        broken.append(f"{most:,} bytes in ZooKeeper, with queues limited to {3 * BYTES:,}")
    waiting = int(facts["stored for the durable reader"]) - int(facts["handled by the durable reader"])
    if waiting > LIMIT + 2 * 5_000:
        broken.append(f"{waiting:,} messages wait for the durable reader, whose limit is {LIMIT:,}")
    if not facts["refused, QueueFull"]:
        broken.append("the durable reader's publisher was never pushed back: nothing was overrun")
    if backwards := sum(int(counts.get("backwards", 0)) for counts in by_name.values()):
        broken.append(f"{backwards:,} messages came twice or out of order")
