"""What is made of the measurements: medians, turns, and whether a target is met."""

from __future__ import annotations

from pathlib import Path

import pytest

from zkms.bench import report, suites
from zkms.bench.processes import meter
from zkms.bench.processes.crew import BenchFailed
from zkms.bench.processes.site import Site
from zkms.bench.results import Document, Drain, Latency, Machine, Purge, Row, Throughput, median, percentiles
from zkms.bench.suites import Plan, Trial, carry_out
from zkms.bench.targets import judge


def throughput(
    algorithm: str, subscribers: int, rate: float, *, threads: int = 0, requests: float = 0.01
) -> Throughput:
    return Throughput(
        algorithm=algorithm, subscribers=subscribers, threads=threads, size=100, messages=1, seconds=1.0,
        messages_per_s=rate, published_per_s=rate, deliveries_per_s=rate * subscribers, frame=1,
        requests_per_delivery=requests, publisher_cpu_us=1.0, subscriber_cpu_us=1.0, server_cpu_us=None,
        subscriber_memory_mb=1.0, subscriber_bytes=0.0, publisher_memory_mb=1.0, server_memory_mb=None,
    )  # fmt: skip


def latency(algorithm: str, subscribers: int, p50: float, requests: float = 1.0) -> Latency:
    return Latency(
        algorithm=algorithm, subscribers=subscribers, rate=100, deliveries=1, p50_ms=p50, p99_ms=p50, p999_ms=p50,
        late=0, requests_per_delivery=requests, cpu_us=1.0,
    )  # fmt: skip


@pytest.fixture
def document() -> Document:
    """A run that meets everything, if only just."""
    machine = Machine(
        cores=2, system="Linux", python="3", zkms="1", zookeeper="3", embedded=True, persistence="fsync", others=""
    )
    return Document(
        suite="targets", rounds=1, seconds=1.0, machine=machine,
        throughput=[
            throughput("zkms", 1, 600), throughput("original", 1, 1),
            throughput("zkms", 20, 1500, requests=0.05), throughput("original", 20, 1),
            throughput("zkms", 20, 50, threads=32), throughput("zkms", 200, 150),
        ],
        latency=[
            latency("zkms", 1, 1.3), latency("floor", 1, 1.0),
            latency("zkms", 20, 4.0, requests=2.5), latency("original", 20, 10.0),
        ],
        drain=[
            Drain(backlog=10_000, seconds=1, messages_per_s=10, growth_mb=1),
            Drain(backlog=1_000_000, seconds=1, messages_per_s=8, growth_mb=50),
        ],
        purge=[
            Purge(algorithm="zkms", znodes=1, seconds=1, znodes_per_s=30),
            Purge(algorithm="kazoo", znodes=1, seconds=1, znodes_per_s=1),
        ],
    )  # fmt: skip


def test_a_run_that_meets_every_target_is_told_so(document: Document) -> None:
    """All eleven, at their very bounds."""
    targets = judge(document)
    assert len(targets) == 11
    assert [target.work for target in targets if not target.met] == []


@pytest.mark.parametrize("kind", ["throughput", "latency", "drain", "purge"])
def test_what_was_not_measured_is_not_met(kind: str, document: Document) -> None:
    """A target without figures is never met."""
    getattr(document, kind).clear()
    missing = [target for target in judge(document) if target.measured == "not measured"]
    assert missing
    assert not any(target.met for target in missing)


def test_what_is_too_slow_is_not_met(document: Document) -> None:
    """Each bound is a bound: a little worse fails, and fails alone."""
    document.find("zkms", 1).messages_per_s = 599  # type: ignore[union-attr]
    document.find_latency("zkms", 1).p50_ms = 1.31  # type: ignore[union-attr]
    missed = [target for target in judge(document) if not target.met]
    assert [target.measured for target in missed] == ["599x", "1.31x"]


def test_a_report_shows_every_figure(document: Document, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables for people, with the targets and the metrics to choose a broker by."""
    document.targets, document.broker = judge(document), report.broker_metrics(document)
    document.failures["something"] = "because"
    report.show(document)
    said = capsys.readouterr().out
    for words in ("1,500x", "1.30x", "AGAINST ORIGINAL", "at least 600x", "CONSUMED/S", "Persistence: fsync",
                  "something: because"):  # fmt: skip
        assert words in said


def test_a_median_is_a_row_that_was_measured() -> None:
    """The middle one; of two the worse."""
    rows = [throughput("zkms", 1, rate) for rate in (3, 1, 2)]
    assert median(rows, lambda row: row.messages_per_s).messages_per_s == 2
    assert median(rows[:2], lambda row: row.messages_per_s).messages_per_s == 1


def test_percentiles_are_in_milliseconds() -> None:
    """Of a thousand and one even steps."""
    assert percentiles([i / 1000 for i in range(1001)]) == pytest.approx((500, 990, 999))


@pytest.mark.parametrize("suite", suites.SUITES)
def test_rounds_take_turns(suite: str, tmp_path: Path) -> None:
    """Whoever comes first in one round comes last in the next; the same thing is not measured under two names."""
    plan = Plan(Site("127.0.0.1:1", "/x", tmp_path, []), suite, seconds=1, rounds=2)
    first, second, third, fourth = [trial.key for trial in plan.trials[:4]]
    assert (first, second) == (fourth, third)
    assert first != second
    assert max(sum(other.key == trial.key for other in plan.trials) for trial in plan.trials) == 2


def test_a_measurement_that_fails_does_not_end_the_run(document: Document, tmp_path: Path) -> None:
    """It is noted with its reason; the others are measured."""

    def fail() -> Row:
        raise BenchFailed("no luck")

    plan = Plan(Site("127.0.0.1:1", "/x", tmp_path, []), "quick", seconds=1, rounds=1)
    plan.warm_up = []
    plan.trials = [Trial("a", "first", fail), Trial("b", "second", lambda: throughput("zkms", 7, 7.0))]
    said = list(carry_out(plan, document))
    assert ("first", "failed: no luck") in said
    assert document.failures == {"first": "no luck"}
    assert document.find("zkms", 7) is not None


def test_a_busy_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the CPU in use, or where nothing tells that by the load average; a quiet one says nothing."""
    monkeypatch.setattr(meter.os, "getloadavg", lambda: (8.0, 8.0, 8.0))
    monkeypatch.setattr(meter.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(meter, "_busy_share", lambda _seconds: None)
    assert meter.others_at_work() == "others were at work: load average 8.0 on 2 cores before we began"
    monkeypatch.setattr(meter.os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    assert meter.others_at_work() == ""
    monkeypatch.setattr(meter, "_busy_share", lambda _seconds: 0.5)
    assert "50% of the CPU in use" in meter.others_at_work()
    monkeypatch.setattr(meter.os, "getloadavg", lambda: (8.0, 8.0, 8.0))
    monkeypatch.setattr(meter, "_busy_share", lambda _seconds: 0.0)
    assert meter.others_at_work() == "", "what has made that load is over"
