"""Two hundred subscribers, each a process: every message to all of them; and all their connections cut at once.

In the storm they are cut and kept out for a while, as if the server were restarted, with a proxy in between. How they
come back is told by themselves: when, and with which session. The same again without jitter shows what that is for.
"""

from __future__ import annotations

import os
import time
from collections import Counter as Tally
from collections.abc import Callable, Sequence

from verification.soak.cast import Actor, Cast, SoakFailed
from verification.soak.meters import ask_server
from verification.soak.results import Document
from zkms.server.embedded import EmbeddedZooKeeper
from zkms.testing.proxy import Proxy
from zkms.testing.roots import new_root

TOPIC = "events"
DELIVERED = 300.0
"""Seconds for what was published to reach everybody, on a busy machine."""
BACK = 120.0
BIN = 0.05
"""Seconds of one bar of the histogram."""
REQUESTS_EACH = 40
"""Requests that a client may need to be back at work."""
Say = Callable[[str], None]


def run(subscribers: int, seconds: float, say: Say = lambda _text: None) -> Document:
    """Publish at a steady pace to so many; all get all of it."""
    document = _document("crowd", seconds)
    with EmbeddedZooKeeper(heap="512m") as server:
        root = new_root()
        with Cast(server.hosts, root) as cast:
            crowd, publisher = _gather(cast, subscribers, document, say)
            publisher.tell(rate=100.0)
            time.sleep(seconds)
            cast.stop([publisher], DELIVERED)
            _check_delivered(cast, crowd, publisher, 1, document)
            document.facts["connections of the server"] = _server(server).get("connections", 0)
    return document


def storm(clients: int, outage: float, *, jitter: bool = True, say: Say = lambda _text: None) -> Document:
    """Cut all at once, and let them back in after `outage` seconds."""
    document = _document("storm" if jitter else "storm-without-jitter", outage)
    with EmbeddedZooKeeper(heap="512m") as server, Proxy(server.hosts) as proxy:
        root = new_root()
        with Cast(proxy.hosts, root) as cast:
            crowd, publisher = _gather(cast, clients, document, say, jitter=jitter)
            quiet = _quiet(server)
            proxy.refuse()
            proxy.drop()
            time.sleep(outage)
            before = _server(server).get("requests", 0)
            opened = time.time()
            proxy.accept()
            _await_back(crowd, opened)
            document.facts["requests/s of all of them before"] = quiet
            recovery = time.time() - opened
            needed = _server(server).get("requests", 0) - before
            _tell_storm(document, crowd, opened, recovery, needed)
            publisher.tell(rate=100.0)
            time.sleep(2.0)
            cast.stop([publisher], DELIVERED)
            _check_delivered(cast, crowd, publisher, 1, document)
        proxy.drop()  # what the killed ones left open
        time.sleep(0.5)
    return document


def _document(scenario: str, seconds: float) -> Document:
    load = round(os.getloadavg()[0], 2)
    return Document(scenario=scenario, began=time.strftime("%Y-%m-%d %H:%M:%S"), seconds=seconds, load_before=load)


def _gather(cast: Cast, count: int, document: Document, say: Say, *, jitter: bool = True) -> tuple[list[Actor], Actor]:
    began = time.monotonic()
    crowd = [cast.start(f"listener-{i + 1}", "listener", topic=TOPIC, jitter=jitter) for i in range(count)]
    cast.ready(crowd)
    document.facts["subscribers, each a process"] = count
    document.facts["seconds until all were subscribed"] = round(time.monotonic() - began, 1)
    publisher = cast.start("publisher-1", "publisher", topic=TOPIC)
    cast.ready([publisher])
    say(f"{count} processes subscribed after {time.monotonic() - began:.0f} s")
    return crowd, publisher


def _check_delivered(cast: Cast, crowd: Sequence[Actor], publisher: Actor, first: int, document: Document) -> None:
    stored = int(publisher.counts.get("published", 0)) + first
    deadline = time.monotonic() + DELIVERED
    while any(actor.counts.get("received", 0) < stored for actor in crowd) and time.monotonic() < deadline:
        time.sleep(0.2)
    got = [int(actor.counts.get("received", 0)) for actor in crowd]
    document.facts["messages stored"] = stored
    document.facts["delivered to each, at least"] = min(got)
    document.facts["delivered to each, at most"] = max(got)
    document.facts["deliveries"] = sum(got)
    document.facts["gaps"] = cast.total("gaps", crowd)
    missed = sum(count != stored for count in got)
    if missed:
        document.broken.append(f"{missed} of {len(got)} subscribers did not get exactly the {stored:,} messages")
    if backwards := cast.total("backwards", crowd):
        document.broken.append(f"{backwards:,} messages came twice or out of order")
    dead = sum(not actor.alive for actor in crowd)
    if dead:
        document.broken.append(f"{dead} subscribers died")


def _server(server: EmbeddedZooKeeper) -> dict[str, int]:
    return ask_server("127.0.0.1", server.ports[0])


def _quiet(server: EmbeddedZooKeeper, seconds: float = 1.5) -> int:
    """Requests per second while nothing happens: pings."""
    before = _server(server).get("requests", 0)
    time.sleep(seconds)
    return round((_server(server).get("requests", 0) - before) / seconds)


def _await_back(crowd: Sequence[Actor], since: float) -> None:
    deadline = time.monotonic() + BACK
    while any(actor.counts.get("connected_at", 0.0) < since for actor in crowd):
        if time.monotonic() > deadline:
            away = sum(actor.counts.get("connected_at", 0.0) < since for actor in crowd)
            raise SoakFailed(f"{away} of {len(crowd)} clients were not back after {BACK:g} s")
        time.sleep(0.2)


def _tell_storm(document: Document, crowd: Sequence[Actor], opened: float, recovery: float, needed: int) -> None:
    times = sorted(actor.counts["connected_at"] - opened for actor in crowd)
    bars = Tally(int(each / BIN) for each in times)
    lost = sum(actor.counts["generation"] > 1 for actor in crowd)
    facts = document.facts
    facts["back after, s: first"] = round(times[0], 3)
    facts["back after, s: half of them"] = round(times[len(times) // 2], 3)
    facts["back after, s: last"] = round(times[-1], 3)
    facts[f"most in any {BIN * 1000:.0f} ms"] = max(bars.values())
    facts["histogram, clients per 50 ms"] = " ".join(str(bars.get(i, 0)) for i in range(int(times[-1] / BIN) + 1))
    facts["sessions lost"] = lost
    facts["requests until all were back, per client"] = round(needed / len(crowd), 1)
    if lost:
        document.broken.append(f"{lost} sessions were lost in an outage shorter than the session time-out")
    if needed > REQUESTS_EACH * len(crowd):
        document.broken.append(
            f"{needed:,} requests in {recovery:.0f} s to recover, more than {REQUESTS_EACH} for each client"
        )
