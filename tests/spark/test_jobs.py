"""The jobs' tables as files: whole, by the minute, all of them or those that are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from zkms_spark import material
from zkms_spark.analysis import analyse, make_tables
from zkms_spark.errors import AnalysisError
from zkms_spark.jobs import JOBS, Tables

from zkms.trail.generate.generate import PLANTED, Generator
from zkms.trail.generate.planting import parse_faults

pytestmark = pytest.mark.timeout(1200)
DOCS = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.fixture(scope="module")
def trail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small one, with a violation."""
    directory = tmp_path_factory.mktemp("jobs") / "trail"
    Generator(5_000, directory, faults=parse_faults("lost=1"), parquet=True).run()
    return directory


def test_the_tables_are_those_that_the_report_is_made_of(spark: Any, trail: Path, tmp_path: Path) -> None:
    """Every job has its own, and they count what the report counts; latency is by topic, subscription and minute."""
    tables = Tables(str(tmp_path))
    report = analyse(spark, str(trail), tables=tables)
    assert {path.name for path in tmp_path.iterdir()} == set(JOBS)
    read = {name: spark.read.parquet(tables.place(name)) for name in JOBS}
    rows = {name: [row.asDict() for row in frame.collect()] for name, frame in read.items()}
    violations = json.loads((trail / PLANTED).read_text())["violations"]
    assert len([row for row in rows["findings"] if row["verdict"] == "violation"]) == len(violations) == 1
    assert {row["violation"]: row["status"] for row in rows["guarantees"]} == {
        verdict.violation: verdict.status for verdict in report.verdicts
    }
    latency = rows["latency"]
    assert {"topic", "sub", "step", "messages", "p50", "p90", "p99", "slowest"} == set(latency[0])
    assert len({(row["topic"], row["sub"], row["step"]) for row in latency}) == len(latency)
    assert all(row["step"] % 60 == 0 for row in latency)
    delivered = report.totals["delivered"]
    for name, column in (("latency", "messages"), ("topic_latency", "messages"), ("throughput", "delivered")):
        assert sum(row[column] for row in rows[name]) == delivered, name
    by_name = {(row["topic"], row["sub"]): row["messages"] for row in report.subscriptions}
    assert {(row["topic"], row["sub"]): row["messages"] for row in rows["subscriptions"]} == by_name
    assert {row["run"] for row in rows["processes"]} == {run["run"] for run in report.runs}
    for name in ("retries", "incidents", "absent", "holes", "clocks", "storms"):
        assert len(rows[name]) == len(getattr(report, name)), name


@pytest.mark.parametrize("form", ["json", "csv"])
def test_one_job_alone_makes_its_table_and_no_audit(
    spark: Any, trail: Path, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does not need is not worked out."""
    monkeypatch.setattr(material, "audit", lambda *_args: pytest.fail("nobody asked for the audit"))
    tables = Tables(str(tmp_path / "tables"), form, ["throughput", "throughput"])
    made = make_tables(spark, str(trail), tables)
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["throughput"]
    reader = spark.read.option("header", "true").option("inferSchema", "true").format(form)
    published = sum(row.published for row in reader.load(tables.place("throughput")).collect())
    assert published == made.messages > 0


def test_nothing_is_overwritten_and_an_unknown_job_is_named(spark: Any, tmp_path: Path) -> None:
    """Said before the work begins."""
    (tmp_path / "lag").mkdir()
    with pytest.raises(AnalysisError, match="lag is there already"):
        Tables(str(tmp_path)).check(spark)
    Tables(str(tmp_path), names=["latency"]).check(spark)
    with pytest.raises(AnalysisError, match="No FileSystem"):
        Tables("nowhere://tables").check(spark)
    with pytest.raises(AnalysisError, match="no job 'speed': there are guarantees, findings"):
        Tables(str(tmp_path), names=["speed"])


def test_every_job_is_documented() -> None:
    """With what its table has."""
    text = DOCS.read_text()
    assert [name for name in JOBS if f"| `{name}` |" not in text] == []
