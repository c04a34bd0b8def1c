"""What is required of zkms, and whether a run has shown it: ratios within that run, for figures differ by machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zkms.bench.results import Document, Drain, Target

Value = float | None


@dataclass(frozen=True)
class Requirement:
    """One line of the table: a figure, and the least or the most that it may be."""

    work: str
    value: Callable[[Document], Value]
    least: float = 0
    most: float = 0
    unit: str = "x"

    def judge(self, document: Document) -> Target:
        """Whether the run has met it; what was not measured is not met."""
        bound = f"at least {self.least:g}" if self.least else f"at most {self.most:g}"
        value = self.value(document)
        if value is None:
            return Target(work=self.work, required=bound + self.unit, measured="not measured", value=-1.0, met=False)
        met = value >= self.least if self.least else value <= self.most
        measured = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        return Target(work=self.work, required=bound + self.unit, measured=measured + self.unit, value=value, met=met)


def _ratio(numerator: Value, denominator: Value) -> Value:
    return None if numerator is None or not denominator else numerator / denominator


def _rate(document: Document, algorithm: str, subscribers: int, threads: int = 0) -> Value:
    return getattr(document.find(algorithm, subscribers, threads=threads), "messages_per_s", None)


def _deliveries(document: Document, subscribers: int) -> Value:
    return getattr(document.find("zkms", subscribers), "deliveries_per_s", None)


def _p50(document: Document, algorithm: str, subscribers: int) -> Value:
    return getattr(document.find_latency(algorithm, subscribers), "p50_ms", None)


def _drain(document: Document, backlog: int) -> Drain | None:
    return next((row for row in document.drain if row.backlog == backlog), None)


def _drained(document: Document, backlog: int) -> Value:
    return getattr(_drain(document, backlog), "messages_per_s", None)


def _purged(document: Document, algorithm: str) -> Value:
    return next((row.znodes_per_s for row in document.purge if row.algorithm == algorithm), None)


REQUIREMENTS = (
    Requirement(
        "end to end, 1 subscriber, against the original's algorithm",
        lambda d: _ratio(_rate(d, "zkms", 1), _rate(d, "original", 1)),
        least=600,
    ),
    Requirement(
        "end to end, 20 subscribers, against the original's algorithm",
        lambda d: _ratio(_rate(d, "zkms", 20), _rate(d, "original", 20)),
        least=1500,
    ),
    Requirement(
        "plain publish() from 32 threads, 20 subscribers, against the original's algorithm",
        lambda d: _ratio(_rate(d, "zkms", 20, 32), _rate(d, "original", 20)),
        least=50,
    ),
    Requirement(
        "ZooKeeper requests per delivery, 100 messages/s, 20 subscribers",
        lambda d: getattr(d.find_latency("zkms", 20), "requests_per_delivery", None),
        most=2.5,
        unit="",
    ),
    Requirement(
        "ZooKeeper requests per delivery, full speed, 20 subscribers",
        lambda d: getattr(d.find("zkms", 20), "requests_per_delivery", None),
        most=0.05,
        unit="",
    ),
    Requirement(
        "latency p50, 100 messages/s, 1 subscriber, against the bare floor",
        lambda d: _ratio(_p50(d, "zkms", 1), _p50(d, "floor", 1)),
        most=1.3,
    ),
    Requirement(
        "latency p50, 100 messages/s, 20 subscribers, against the original's at 10 messages/s",
        lambda d: _ratio(_p50(d, "zkms", 20), _p50(d, "original", 20)),
        most=0.4,
    ),
    Requirement(
        "deliveries/s, 200 subscribers against 20", lambda d: _ratio(_deliveries(d, 200), _deliveries(d, 20)), least=1
    ),
    Requirement(
        "drain rate, backlog of 1,000,000 against 10,000",
        lambda d: _ratio(_drained(d, 1_000_000), _drained(d, 10_000)),
        least=0.8,
    ),
    Requirement(
        "growth of the reader's memory at 1,000,000",
        lambda d: getattr(_drain(d, 1_000_000), "growth_mb", None),
        most=50,
        unit=" MB",
    ),
    Requirement(
        "purge of 100,000 znodes, against kazoo's delete(recursive=True)",
        lambda d: _ratio(_purged(d, "zkms"), _purged(d, "kazoo")),
        least=30,
    ),
)


def judge(document: Document) -> list[Target]:
    """Every requirement, in order."""
    return [requirement.judge(document) for requirement in REQUIREMENTS]
