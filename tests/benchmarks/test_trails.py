"""The benchmark of trails: the baseline finds what was planted, and the page says what is met."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.trails import page, plot
from benchmarks.trails.contestant import Outcome, duckdb_by_sql
from benchmarks.trails.results import Conditions, Planted, Recorder, Results, Scale, Speed, load, save
from benchmarks.trails.trials import agree
from zkms.trail.generate.generate import Generator

CONDITIONS = Conditions("Linux", "3", 2, [0.1, 2.5], "today")


def test_the_straightforward_version_finds_what_was_planted(tmp_path: Path) -> None:
    """So that what the jobs are compared with does the same work."""
    pytest.importorskip("duckdb")
    faults = {"duplicated": 2, "out_of_order": 2}
    done = Generator(20_000, tmp_path / "trail", faults=faults, seed=4, parquet=True).run()
    answers = duckdb_by_sql(str(tmp_path / "trail"), 500).answers
    planted = {
        kind: {
            f"{each.topic} {each.sub} {each.producer}:{number}"
            for each in done.violations
            if each.violation == kind
            for number in range(each.seq, each.seq + each.n)
        }
        for kind in faults
    }
    assert set(answers["duplicated"]) == planted["duplicated"]
    assert set(answers["out_of_order"]) - planted["duplicated"] == planted["out_of_order"]
    assert answers["latency"] > answers["lost"] > 0  # a node was killed: its messages did not arrive


def outcome(name: str, cpu: float, seconds: float = 10.0, memory: float = 1000.0) -> Outcome:
    answers = {"latency": 5, "lost": 1, "duplicated": ["a"], "out_of_order": []}
    return Outcome(name, 1.0, seconds, {"lost": seconds}, cpu, memory, answers, {"java_cpu": cpu})


def results() -> Results:
    outcomes = [
        outcome("Spark, straightforward", 60),
        outcome("Spark, the jobs", 10),
        outcome("DuckDB, straightforward", 5),
    ]
    scale = Scale(CONDITIONS, [10, 100], [outcome("all jobs", 10), outcome("all jobs", 100, 121.0, 5000.0)])
    planted = Planted(CONDITIONS, 10, {"lost": 2}, {"lost": 1}, 1, 0)
    recorder = Recorder(CONDITIONS, 20, 100, [0.95, 0.97, 0.2], [0.7, 0.75, 3.0], [0.9] * 3, [0.9] * 3)
    return Results(Speed(CONDITIONS, 20_000_000, outcomes, agree(outcomes)), planted, scale, recorder)


def test_the_page_says_what_is_required_and_whether_it_is_met() -> None:
    """Faster than plain SQL, in bounded memory, in proportion, and cheap to record."""
    text = page.page(results())
    for line in (
        "Answers agree.",
        "Required against the straightforward version: 5x. By CPU 6.0x: met.",
        "| lost | 2 | 1 |",
        "Not found: 1. Invented: 0.",
        "Memory, at most 4,096 MB: **not met**.",
        "10.0 times the events take 12.1 times as long, and 10.0 times the CPU; at most 12.0 times is required: **not",
        "| publish | 0.950 | 0.9 | met | 0.900 |",
        "| end to end | 0.750 | 0.8 | **not met** | 0.900 |",
    ):
        assert line in text


def test_parts_are_kept_and_drawn(tmp_path: Path) -> None:
    """What is measured later is added to what is there."""
    file = tmp_path / "trails.json"
    assert load(file) == Results()
    save(results(), file)
    assert load(file) == results()
    plot.save(results(), tmp_path / "trails.png")
    assert (tmp_path / "trails.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_answers_that_differ_are_told() -> None:
    """A repeat may be out of order besides; anything else is a difference."""
    one, other = outcome("a", 1), outcome("b", 1)
    other.answers["out_of_order"] = ["a"]
    assert agree([one, other])
    other.answers["out_of_order"] = ["b"]
    assert not agree([one, other])
