"""What is run: a plan of trials, each a few seconds of one experiment, and the medians of their rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from zkms.bench.experiments import among_topics, drain, latency, throughput
from zkms.bench.processes import purge
from zkms.bench.processes.crew import BenchFailed
from zkms.bench.processes.site import Site
from zkms.bench.results import Document, Drain, Latency, Purge, Row, Throughput, median
from zkms.cli.output import plural


class Scale(NamedTuple):
    """How long a suite takes unless told otherwise: seconds a measurement, and rounds."""

    seconds: float
    rounds: int


SUITES = {"quick": Scale(1.0, 1), "targets": Scale(6.0, 3), "full": Scale(3.0, 1)}
QUICK_PURGE = 5_000
PURGE = 100_000
SMALL_BACKLOG = 10_000
LARGE_BACKLOG = 1_000_000
THREADS = 32


class Trial(NamedTuple):
    """One run of one experiment; rounds of the same have the same key."""

    key: str
    title: str
    work: Callable[[], Row]


class Plan:
    """The trials of a suite, in the order in which they run."""

    def __init__(self, site: Site, suite: str, *, seconds: float, rounds: int) -> None:
        self._site = site
        self._seconds = seconds
        self._rounds = rounds
        self.trials: list[Trial] = []
        self._keys: set[str] = set()
        self.warm_up = [self._throughput("original", 1), self._throughput("zkms", 1)]
        """Run first and thrown away: a fresh server is slow until its code is compiled."""
        {"quick": self._quick, "targets": self._targets, "full": self._full}[suite]()

    # -- the suites ----------------------------------------------------------------------------------------------

    def _quick(self) -> None:
        for subscribers in (1, 20):
            self._contest(self._throughput("zkms", subscribers), self._throughput("original", subscribers))
        self._contest(self._latency("zkms", 1, 100, 3), self._latency("floor", 1, 100, 3))
        znodes = max(100, int(QUICK_PURGE * min(1.0, self._seconds)))
        self._contest(self._cleaner(znodes), self._recursive(znodes // 5))

    def _targets(self) -> None:
        self._contest(self._throughput("zkms", 1), self._throughput("original", 1))
        self._contest(
            self._throughput("zkms", 20),
            self._throughput("zkms", 200),
            self._throughput("original", 20),
            self._throughput("zkms", 20, threads=THREADS),
        )
        self._contest(self._latency("zkms", 1, 100, 3), self._latency("floor", 1, 100, 3))
        self._contest(self._latency("zkms", 20, 100, 3), self._latency("original", 20, 10, 3))
        self._contest(self._drain(SMALL_BACKLOG), self._drain(LARGE_BACKLOG))
        self._contest(self._cleaner(PURGE))
        self._contest(self._recursive(PURGE), rounds=1)  # takes minutes, and is the same every time

    def _full(self) -> None:
        self._targets()
        for trials in (
            [self._throughput("zkms", count) for count in (1, 2, 5, 10, 20, 50, 100, 200)],
            [self._throughput("original", count) for count in (1, 2, 5, 10, 20)],
            [self._sized(size) for size in (10, 100, 1_000, 10_000, 100_000)],
            [self._published(count) for count in (1, 2, 4, 8)],
            [self._topics(count) for count in (1, 10, 100, 1_000, 10_000)],
            [self._drain(count) for count in (1_000, 10_000, 100_000, 1_000_000)],
        ):
            for trial in trials:
                self._contest(trial)

    def _contest(self, *trials: Trial, rounds: int | None = None) -> None:
        """Add each of the trials in every round, in turns: nobody always comes first, or always last."""
        new = [trial for trial in trials if trial.key not in self._keys]
        self._keys |= {trial.key for trial in new}
        for i in range(rounds or self._rounds):
            self.trials += new if i % 2 == 0 else reversed(new)

    # -- the trials ----------------------------------------------------------------------------------------------

    def _throughput(self, algorithm: str, subscribers: int, *, threads: int = 0) -> Trial:
        how = f" from {threads} threads" if threads else ""
        title = f"{algorithm}: throughput{how} to {plural(subscribers, 'subscriber')}"
        return Trial(
            f"throughput {algorithm} {subscribers} {threads}",
            title,
            lambda: throughput(self._site, algorithm, subscribers, self._seconds, threads=threads),
        )

    def _sized(self, size: int) -> Trial:
        return Trial(
            f"size {size}" if size != 100 else "throughput zkms 1 0",
            f"zkms: throughput of messages of {size:,} bytes",
            lambda: throughput(self._site, "zkms", 1, self._seconds, size=size),
        )

    def _published(self, publishers: int) -> Trial:
        return Trial(
            f"publishers {publishers}" if publishers > 1 else "throughput zkms 1 0",
            f"zkms: throughput of {plural(publishers, 'publisher')}",
            lambda: throughput(self._site, "zkms", 1, self._seconds, publishers=publishers),
        )

    def _topics(self, topics: int) -> Trial:
        return Trial(
            f"topics {topics}" if topics > 1 else "throughput zkms 1 0",
            f"zkms: throughput with {plural(topics, 'topic')}",
            lambda: among_topics(self._site, topics, self._seconds),
        )

    def _latency(self, algorithm: str, subscribers: int, rate: float, times: int) -> Trial:
        seconds = times * self._seconds
        return Trial(
            f"latency {algorithm} {subscribers}",
            f"{algorithm}: latency at {rate:g}/s to {plural(subscribers, 'subscriber')}",
            lambda: latency(self._site, algorithm, subscribers, rate, seconds),
        )

    def _drain(self, backlog: int) -> Trial:
        return Trial(f"drain {backlog}", f"zkms: drain of {backlog:,}", lambda: drain(self._site, backlog))

    def _cleaner(self, znodes: int) -> Trial:
        return Trial("purge zkms", f"zkms: purge of {znodes:,} znodes", lambda: purge.cleaner(self._site, znodes))

    def _recursive(self, znodes: int) -> Trial:
        title = f"kazoo: recursive delete of {znodes:,} znodes"
        return Trial("purge kazoo", title, lambda: purge.recursive_delete(self._site, znodes))


def carry_out(plan: Plan, document: Document) -> Iterator[tuple[str, str]]:
    """Run all trials, yielding each one's title before and its result after; the medians go into the document.

    A trial that fails is noted there, and the others go on.
    """
    rows: dict[str, list[Row]] = {}
    for number, trial in enumerate([*plan.warm_up, *plan.trials]):
        warm = number < len(plan.warm_up)
        yield (f"warm-up: {trial.title}" if warm else trial.title), ""
        try:
            row = trial.work()
        except BenchFailed as error:
            document.failures[trial.title] = str(error)
            yield trial.title, f"failed: {error}"
            continue
        yield trial.title, headline(row)
        if not warm:
            rows.setdefault(trial.key, []).append(row)
    for measured in rows.values():
        _add(document, measured)


def _add(document: Document, rows: list[Row]) -> None:
    match median(rows, _merit):
        case Throughput() as row:
            document.throughput.append(row)
        case Latency() as row:
            document.latency.append(row)
        case Drain() as row:
            growth = max(each.growth_mb for each in rows if isinstance(each, Drain))
            document.drain.append(msgspec.structs.replace(row, growth_mb=growth))
        case Purge() as row:
            document.purge.append(row)


def _merit(row: Row) -> float:
    match row:
        case Throughput() | Drain():
            return row.messages_per_s
        case Latency():
            return row.p50_ms
        case Purge():
            return row.znodes_per_s


def headline(row: Row) -> str:
    """A row in a few words."""
    match row:
        case Throughput():
            return f"{row.messages_per_s:,.0f} messages/s, {row.deliveries_per_s:,.0f} deliveries/s"
        case Latency():
            return f"p50 {row.p50_ms:.2f} ms, p99 {row.p99_ms:.2f} ms, p99.9 {row.p999_ms:.2f} ms"
        case Drain():
            return f"{row.messages_per_s:,.0f} messages/s, {row.growth_mb:.1f} MB more memory"
        case Purge():
            return f"{row.znodes_per_s:,.0f} znodes/s"
