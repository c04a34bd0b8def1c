"""What is required of zkms, and whether a run has shown it: ratios within that run, for figures differ by machine."""

from __future__ import annotations

from collections.abc import Callable

from zkms.bench.results import Document, Drain, Purge, Target

Value = float | None


class Requirement:
    """One line of the table: a figure, and the least or the most that it may be."""

    def __init__(
        self, work: str, value: Callable[[Document], Value], *, least: float = 0, most: float = 0, unit: str = "x"
    ) -> None:
        self.work = work
        self._value = value
        self._least = least
        self._most = most
        self._unit = unit

    def judge(self, document: Document) -> Target:
        """Whether the run has met it; what was not measured is not met."""
        bound = f"at least {self._least:g}" if self._least else f"at most {self._most:g}"
        value = self._value(document)
        if value is None:
            return Target(work=self.work, required=bound + self._unit, measured="not measured", value=-1.0, met=False)
        met = value >= self._least if self._least else value <= self._most
        measured = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        return Target(work=self.work, required=bound + self._unit, measured=measured + self._unit, value=value, met=met)


def _ratio(numerator: Value, denominator: Value) -> Value:
    return None if numerator is None or not denominator else numerator / denominator


def _rate(document: Document, algorithm: str, subscribers: int, threads: int = 0) -> Value:
    row = document.find(algorithm, subscribers, threads=threads)
    return None if row is None else row.messages_per_s


def _deliveries(document: Document, subscribers: int) -> Value:
    row = document.find("zkms", subscribers)
    return None if row is None else row.deliveries_per_s


def _requests(document: Document) -> Value:
    row = document.find("zkms", 20)
    return None if row is None else row.requests_per_delivery


def _slow_requests(document: Document) -> Value:
    row = document.find_latency("zkms", 20)
    return None if row is None else row.requests_per_delivery


def _p50(document: Document, algorithm: str, subscribers: int) -> Value:
    row = document.find_latency(algorithm, subscribers)
    return None if row is None else row.p50_ms


def _drains(document: Document) -> tuple[Drain | None, Drain | None]:
    small = next((row for row in document.drain if row.backlog == 10_000), None)
    return next((row for row in document.drain if row.backlog == 1_000_000), None), small


def _drained(document: Document) -> Value:
    large, small = _drains(document)
    return None if large is None or small is None else large.messages_per_s / small.messages_per_s


def _growth(document: Document) -> Value:
    large, _ = _drains(document)
    return None if large is None else large.growth_mb


def _purged(document: Document, algorithm: str) -> Value:
    row: Purge | None = next((row for row in document.purge if row.algorithm == algorithm), None)
    return None if row is None else row.znodes_per_s


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
    Requirement("ZooKeeper requests per delivery, 100 messages/s, 20 subscribers", _slow_requests, most=2.5, unit=""),
    Requirement("ZooKeeper requests per delivery, full speed, 20 subscribers", _requests, most=0.05, unit=""),
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
        "deliveries/s, 200 subscribers against 20",
        lambda d: _ratio(_deliveries(d, 200), _deliveries(d, 20)),
        least=1,
    ),
    Requirement("drain rate, backlog of 1,000,000 against 10,000", _drained, least=0.8),
    Requirement("growth of the reader's memory at 1,000,000", _growth, most=50, unit=" MB"),
    Requirement(
        "purge of 100,000 znodes, against kazoo's delete(recursive=True)",
        lambda d: _ratio(_purged(d, "zkms"), _purged(d, "kazoo")),
        least=30,
    ),
)


def judge(document: Document) -> list[Target]:
    """Every requirement, in order."""
    return [requirement.judge(document) for requirement in REQUIREMENTS]
