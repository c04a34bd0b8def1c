"""Costs that should stay flat: the points at which the full suite looks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from zkms.bench.algorithms.ours import connect
from zkms.bench.experiments import throughput
from zkms.bench.processes.site import Site
from zkms.bench.results import Throughput

SUBSCRIBERS = (1, 2, 5, 10, 20, 50, 100, 200)
ORIGINAL = (1, 2, 5, 10, 20)
SIZES = (10, 100, 1_000, 10_000, 100_000)
PUBLISHERS = (1, 2, 4, 8)
TOPICS = (1, 10, 100, 1_000, 10_000)
BACKLOGS = (1_000, 10_000, 100_000, 1_000_000)
AT_ONCE = 8


def among_topics(site: Site, topics: int, seconds: float) -> Throughput:
    """The throughput of one topic while so many others are subscribed to."""
    place = site.place()
    with connect(place) as bus:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda i: bus.subscribe(f"other-{i}"), range(topics - 1)))
        return throughput(site, "zkms", 1, seconds, topics=topics, place=place)
