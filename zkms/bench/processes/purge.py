"""The purge of a dead subscriber's queue: the cleaner's, and kazoo's recursive delete."""

from __future__ import annotations

import time
from collections import deque

from zkms_cleaner.election import Election
from zkms_cleaner.sweep import Sweeper

from zkms.bench.algorithms.original import client
from zkms.bench.algorithms.ours import connect
from zkms.bench.experiments import MODULES
from zkms.bench.processes.crew import BenchFailed, Crew
from zkms.bench.processes.site import Site
from zkms.bench.results import Purge
from zkms.tree.entry import entry_prefix

BATCH = 500
IN_FLIGHT = 4
SESSION = 2.0
PATIENCE = 60.0
PAYLOAD = b"x" * 100


def cleaner(site: Site, znodes: int) -> Purge:
    """A subscriber is killed, its queue filled, and the cleaner's sweep timed: finding it, condemning, deleting."""
    place = site.place()
    with Crew(
        MODULES["zkms"], place, site.folder, subscribers=1, processes=1, publishers=0, session_timeout=SESSION
    ) as crew:
        (name,) = crew.names
        for process in crew.listeners:
            process.kill()
        crew.listeners.clear()
    with connect(place) as bus:
        deadline = time.monotonic() + PATIENCE
        while bus.subscriptions(place.topic):
            if time.monotonic() > deadline:
                raise BenchFailed(f"a killed subscriber's session has not ended after {PATIENCE:g} s")
            time.sleep(0.05)
        fill(place.address, f"{bus.parts.tree.queue(name, place.topic)}/{entry_prefix(1, len(PAYLOAD))}", znodes)
        lead = Election(bus.parts.session, bus.parts.tree, "bench").lead()
        if lead is None:
            raise BenchFailed("the benchmark's cleaner does not lead in its own root")
        began = time.monotonic()
        swept = Sweeper(bus.parts.session, bus.parts.tree, grace=0.0).sweep(lead)
        seconds = time.monotonic() - began
    removed = sum(finding.entries for finding in swept.removed)
    if removed < znodes:
        raise BenchFailed(f"the cleaner has removed {removed:,} of {znodes:,} znodes")
    return Purge(algorithm="zkms", znodes=znodes, seconds=seconds, znodes_per_s=znodes / seconds)


def recursive_delete(site: Site, znodes: int) -> Purge:
    """As many znodes of the same size, deleted by kazoo's `delete(recursive=True)`."""
    place = site.place()
    kazoo = client(place.address)
    try:
        kazoo.ensure_path(f"{place.root}/queue")
        fill(place.address, f"{place.root}/queue/m-", znodes)
        began = time.monotonic()
        kazoo.delete(f"{place.root}/queue", recursive=True)
        seconds = time.monotonic() - began
    finally:
        kazoo.stop()
        kazoo.close()
    return Purge(algorithm="kazoo", znodes=znodes, seconds=seconds, znodes_per_s=znodes / seconds)


def fill(address: str, prefix: str, znodes: int) -> None:
    """Create sequential znodes in transactions, several in flight."""
    kazoo = client(address)
    under_way: deque[object] = deque()
    try:
        for start in range(0, znodes, BATCH):
            transaction = kazoo.transaction()
            for _ in range(min(BATCH, znodes - start)):
                transaction.create(prefix, PAYLOAD, sequence=True)
            under_way.append(transaction.commit_async())
            if len(under_way) >= IN_FLIGHT:
                _check(under_way.popleft())
        while under_way:
            _check(under_way.popleft())
    finally:
        kazoo.stop()
        kazoo.close()


def _check(reply: object) -> None:
    for result in reply.get(timeout=PATIENCE):  # type: ignore[attr-defined]
        if isinstance(result, Exception):
            raise BenchFailed(f"cannot fill a queue: {result!r}") from result
