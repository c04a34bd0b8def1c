"""The soak: everything at once at half of the peak, members coming and going, and nothing may grow."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

from verification.soak.cast import STOPPED, Actor, Cast
from verification.soak.meters import Counter
from verification.soak.results import Document
from verification.soak.verdict import HEAP_ROOM_MB, judge_all
from verification.soak.watcher import Watcher
from zkms.server.embedded import EmbeddedZooKeeper
from zkms.testing.roots import new_root

TOPIC = "events"
LATER = "later"
GROUP = "workers"
PEAK = 6.0
"""Seconds at full speed, by which the peak is measured; the first third is not counted."""
SETTLE = 120.0
"""Seconds at the end for queues to run empty, on a busy machine."""
GUESTS = 3
LEAVE = 60.0
"""Seconds within which a guest that is asked to leave has left."""
STAY = (4.0, 16.0)
HEAP = "192m"
Say = Callable[[str], None]


class Guests:
    """Processes that come and go all the time; every other one is killed."""

    def __init__(self, cast: Cast) -> None:
        self.clean = self.killed = self.stuck = 0
        self._cast = cast
        self._here: list[tuple[float, Actor]] = []
        self._leaving: list[tuple[float, Actor]] = []
        self._count = 0
        self._chance = random.Random(7)

    def tend(self, at: float) -> None:
        """Send away those whose time is over, and let others come."""
        for leaves, guest in [*self._here]:
            if leaves > at:
                continue
            self._here.remove((leaves, guest))
            if int(guest.name.rpartition("-")[2]) % 2:
                guest.kill()
                self.killed += 1
            else:
                guest.tell(stop=True)
                self.clean += 1
                self._leaving.append((at, guest))
        for asked, guest in [*self._leaving]:
            if not guest.alive:
                self._leaving.remove((asked, guest))
            elif at - asked > LEAVE:
                self._leaving.remove((asked, guest))
                guest.kill()
                self.stuck += 1
        while len(self._here) < GUESTS:
            self._count += 1
            guest = self._cast.start(
                f"guest-{self._count}", "guest", topic=TOPIC, group=GROUP, sends=self._count % 2 == 0
            )
            self._here.append((at + self._chance.uniform(*STAY), guest))

    def leave(self) -> None:
        """All of them, now."""
        for _, guest in (*self._here, *self._leaving):
            guest.tell(stop=True)
        for _, guest in (*self._here, *self._leaving):
            if not guest.join(STOPPED):
                guest.kill()
        self._here.clear()


def run(
    seconds: float,
    *,
    hosts: str | None = None,
    every: float = 5.0,
    peak: float = PEAK,
    leak: str = "",
    say: Say = lambda _text: None,
) -> Document:
    """Run it for so long, and judge; on a ZooKeeper of its own unless `hosts` are given."""
    if hosts is not None:
        return _run(seconds, hosts, None, every, peak, leak, say)
    with EmbeddedZooKeeper(config={"snapCount": 10_000}, heap=HEAP) as server:
        return _run(seconds, server.hosts, server, every, peak, leak, say)


def _run(
    seconds: float, hosts: str, server: EmbeddedZooKeeper | None, every: float, peak: float, leak: str, say: Say
) -> Document:
    root = new_root()
    document = Document(
        scenario="soak",
        began=time.strftime("%Y-%m-%d %H:%M:%S"),
        seconds=seconds,
        load_before=round(os.getloadavg()[0], 2),
    )
    with Cast(hosts, root) as cast:
        actors = _enter(cast, leak)
        with Counter(hosts, root) as counter:
            watcher, guests = Watcher(cast, actors, server, hosts), Guests(cast)
            asked = _find_peak(cast, actors, peak, document, say)
            document.broken += watcher.watch(seconds, every, counter, guests.tend)
            guests.leave()
            _finish(cast, actors, guests, document)
            document.facts["entries left in queues"] = counter.entries()
    document.samples = watcher.samples
    document.judgements = judge_all(watcher.samples)
    stored = watcher.samples[-1].published - watcher.samples[0].published
    rate = stored / (watcher.samples[-1].at - watcher.samples[0].at)
    document.facts["messages/s stored"] = round(rate)
    if rate < asked / 2:
        document.facts["note"] = "publishers could not keep the pace that was asked for: others were at work"
    _check_server(document)
    return document


def _enter(cast: Cast, leak: str) -> list[Actor]:
    actors = [
        cast.start("janitor-1", "janitor"),
        cast.start("janitor-2", "janitor"),
        cast.start("listener-1", "listener", topic=TOPIC, leak=leak),
        cast.start("listener-2", "listener", topic=TOPIC),
        cast.start("reader-1", "reader", topic=TOPIC, subscription="audit"),
        cast.start("member-1", "member", topic=TOPIC, group=GROUP),
        cast.start("member-2", "member", topic=TOPIC, group=GROUP),
        cast.start("cacher-1", "cacher", cache="users"),
        cast.start("cacher-2", "cacher", cache="users"),
    ]
    cast.ready(actors)
    actors += [
        cast.start("planner-1", "planner", topic=LATER),
        cast.start("publisher-1", "publisher", topic=TOPIC),
        cast.start("publisher-2", "publisher", topic=TOPIC),
    ]
    cast.ready(actors)
    return actors


def _find_peak(cast: Cast, actors: list[Actor], seconds: float, document: Document, say: Say) -> float:
    publishers = [actor for actor in actors if actor.role == "publisher"]
    for publisher in publishers:
        publisher.tell(rate=None)
    time.sleep(seconds / 3)
    before, began = cast.total("published", publishers), time.monotonic()
    time.sleep(seconds * 2 / 3)
    peak = (cast.total("published", publishers) - before) / (time.monotonic() - began)
    asked = max(10.0, peak / 2)
    for publisher in publishers:
        publisher.tell(rate=asked / len(publishers))
    document.facts["peak, messages/s"] = round(peak)
    document.facts["messages/s asked for"] = round(asked)
    say(f"peak {peak:,.0f} messages/s with everybody there; from now on {asked:,.0f}")
    return asked


def _finish(cast: Cast, actors: list[Actor], guests: Guests, document: Document) -> None:
    """Publishers first; when all that they sent has been read, the others. Then promises are looked at."""
    publishers = [actor for actor in actors if actor.role == "publisher"]
    others = [actor for actor in actors if actor.role not in ("publisher", "janitor")]
    cast.stop([actor for actor in publishers if actor.alive], SETTLE)
    stored = cast.total("published", publishers) + len(publishers)  # and the first one of each
    readers = [actor for actor in actors if actor.role == "reader"]
    deadline = time.monotonic() + SETTLE
    while cast.total("received", readers) < stored and time.monotonic() < deadline:
        time.sleep(0.2)
    cast.stop([actor for actor in others if actor.alive], SETTLE)
    cast.stop([actor for actor in actors if actor.role == "janitor" and actor.alive], SETTLE)
    facts = document.facts
    facts["stored"] = stored
    facts["refused because a queue was full"] = cast.total("full", publishers)
    facts["not stored, ZooKeeper was too slow"] = cast.total("failed", publishers)
    facts["outcome not known"] = cast.total("unknown", publishers)
    facts["received by the durable subscription"] = cast.total("received", readers)
    facts["received by the live ones"] = cast.total("received", [a for a in actors if a.role == "listener"])
    facts["cuts of connections, not asked for"] = cast.total("cuts", others)
    facts["gaps told to the live ones"] = cast.total("gaps", actors)
    facts["handled by the group's lasting members"] = cast.total("received", [a for a in actors if a.role == "member"])
    planners = [actor for actor in actors if actor.role == "planner"]
    facts["delayed messages due"] = cast.total("received", planners)
    facts["latest of these, s"] = max((float(a.counts.get("latest_s", 0.0)) for a in planners), default=0.0)
    facts["cache invalidations"] = cast.total("invalidated", actors)
    facts["guests that left"] = guests.clean
    facts["guests that were killed"] = guests.killed
    facts["found and removed by cleaners"] = cast.total("removed", actors)
    broken = document.broken
    got, unknown = cast.total("received", readers), cast.total("unknown", publishers)
    if not stored <= got <= stored + unknown:
        broken.append(f"the durable subscription got {got:,} of {stored:,}, and {unknown:,} whose outcome is not known")
    if backwards := cast.total("backwards", actors):
        broken.append(f"{backwards:,} messages came twice or out of order")
    if early := cast.total("early", planners):
        broken.append(f"{early:,} delayed messages came early")
    if guests.stuck:
        broken.append(f"{guests.stuck} guests did not leave within {LEAVE:g} s when asked to")


def _check_server(document: Document) -> None:
    sizes = [s.processes["server"].rss_mb for s in document.samples if "server" in s.processes]
    if sizes:
        document.facts["the server's memory at most, MB"] = max(sizes)
        most = float(HEAP.rstrip("m")) + HEAP_ROOM_MB
        if max(sizes) > most:
            document.broken.append(f"the server took {max(sizes):.0f} MB, more than {most:.0f}")
