"""Throughput, latency and drain: each starts a crew, gives it orders, and returns a row."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.algorithms.ours import connect
from zkms.bench.processes.crew import Crew, PublishOutcome
from zkms.bench.processes.orders import Publish
from zkms.bench.processes.site import Site
from zkms.bench.results import MB, Drain, Latency, Throughput, percentiles

MODULES = {
    "zkms": "zkms.bench.algorithms.ours",
    "original": "zkms.bench.algorithms.original",
    "floor": "zkms.bench.algorithms.floor",
}
M = TypeVar("M")
PROCESSES = 2
AT_ONCE = 8
MOST = 3_000_000
MOST_BYTES = 1_000 * MB
"""What a measurement publishes at the most, however fast it goes."""
FIRST = {"zkms": 2_000, "original": 10}
"""What a warm-up begins with."""
TIMEOUT = 300.0
LEAST_SAMPLES = 50
RELEASES = 10
"""Times that a small backlog is drained, to be measured at all."""


def throughput(
    site: Site,
    algorithm: str,
    subscribers: int,
    seconds: float,
    *,
    size: int = 100,
    publishers: int = 1,
    threads: int = 0,
    topics: int = 1,
    place: BenchPlace | None = None,
) -> Throughput:
    """As fast as it goes for about so many seconds, after a warm-up that finds out how fast that is."""
    with Crew(
        MODULES[algorithm],
        place or site.place(),
        site.folder,
        subscribers=subscribers,
        processes=PROCESSES,
        publishers=publishers,
    ) as crew:
        order = Publish(FIRST[algorithm], size, threads=threads, timeout=TIMEOUT)
        order, outcome, before, after = at_full_speed(crew, order, seconds, site.meter.read)
    messages = order.messages
    deliveries = messages * subscribers
    server_cpu = _each(before.cpu, after.cpu, deliveries)
    return Throughput(
        algorithm=algorithm,
        subscribers=subscribers,
        publishers=publishers,
        threads=threads,
        topics=topics,
        size=size,
        messages=messages,
        seconds=outcome.seconds,
        messages_per_s=messages / outcome.seconds,
        published_per_s=messages / outcome.publish_seconds,
        deliveries_per_s=deliveries / outcome.seconds,
        frame=outcome.frame,
        requests_per_delivery=_each(before.requests, after.requests, deliveries),
        publisher_cpu_us=outcome.publisher_cpu / deliveries * 1e6,
        subscriber_cpu_us=outcome.subscriber_cpu / deliveries * 1e6,
        server_cpu_us=None if server_cpu is None else server_cpu * 1e6,
        subscriber_memory_mb=outcome.subscriber_memory / MB,
        subscriber_bytes=max(0, outcome.growth) / messages,
        publisher_memory_mb=outcome.publisher_memory / MB,
        server_memory_mb=None if after.memory is None else after.memory / MB,
    )


def among_topics(site: Site, topics: int, seconds: float) -> Throughput:
    """The throughput of one topic while so many others are subscribed to."""
    place = site.place()
    with connect(place) as bus:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda i: bus.subscribe(f"other-{i}"), range(topics - 1)))
        return throughput(site, "zkms", 1, seconds, topics=topics, place=place)


def at_full_speed(
    crew: Crew, order: Publish, seconds: float, meter: Callable[[], M]
) -> tuple[Publish, PublishOutcome, M, M]:
    """Publish more and more until that takes about so many seconds; all but the last time was warm-up.

    What is measured comes after a warm-up of about the same size: with few, large frames the first of them still have
    room made for them, and would be most of a short measurement. Returns the last order, what came of it, and the
    meter before and after.
    """
    most = max(len(crew.publishers), min(MOST, MOST_BYTES // order.size))
    messages = min(most, max(len(crew.publishers), min(order.messages, MOST_BYTES // order.size // 50)))
    warmed = 0
    while True:
        order = msgspec.structs.replace(order, messages=messages)
        before = meter()
        outcome = crew.publish(order)
        after = meter()
        if warmed >= messages / 2 and (outcome.seconds >= seconds / 2 or messages >= most):
            break
        wanted = max(messages, int(messages / outcome.seconds * seconds))
        warmed, messages = messages, min(most, messages * 10, wanted)
    return order, outcome, before, after


def latency(site: Site, algorithm: str, subscribers: int, rate: float, seconds: float) -> Latency:
    """One message after the other at a fixed rate for so many seconds, after a warm-up of a fifth of that."""
    messages = max(LEAST_SAMPLES, int(rate * seconds))
    module, place = MODULES[algorithm], site.place()
    with Crew(module, place, site.folder, subscribers=subscribers, processes=PROCESSES, tally="time") as crew:
        crew.publish(Publish(max(10, messages // 5), rate=rate, timeout=TIMEOUT))
        before = site.meter.read()
        outcome = crew.publish(Publish(messages, rate=rate, timeout=TIMEOUT))
        after = site.meter.read()
    deliveries = messages * subscribers
    p50, p99, p999 = percentiles(outcome.latencies)
    return Latency(
        algorithm=algorithm,
        subscribers=subscribers,
        rate=rate,
        deliveries=deliveries,
        p50_ms=p50,
        p99_ms=p99,
        p999_ms=p999,
        late=outcome.late,
        requests_per_delivery=_each(before.requests, after.requests, deliveries),
        cpu_us=(outcome.publisher_cpu + outcome.subscriber_cpu) / deliveries * 1e6,
    )


def drain(site: Site, backlog: int) -> Drain:
    """One subscriber that is held back until the backlog is complete; a small one several times over."""
    times = RELEASES if backlog < MOST // 30 else 1
    outcomes: list[PublishOutcome] = []
    with Crew(MODULES["zkms"], site.place(), site.folder, subscribers=1, processes=1, tally="hold") as crew:
        order = Publish(backlog, timeout=TIMEOUT)
        crew.pile_up(msgspec.structs.replace(order, messages=min(backlog, 1000)))  # connections and caches are warm
        outcomes += [crew.pile_up(order) for _ in range(times)]
    seconds = sum(outcome.seconds for outcome in outcomes) / times
    growth = max(outcome.growth for outcome in outcomes)
    return Drain(backlog=backlog, seconds=seconds, messages_per_s=backlog / seconds, growth_mb=growth / MB)


def _each(before: float | None, after: float | None, deliveries: int) -> float | None:
    """What a delivery has cost by a meter; None where that cannot be read."""
    return None if before is None or after is None else (after - before) / deliveries
