"""One contestant in a process of its own: `python -m benchmarks.trails.contestant NAME TRAIL MEMORY`.

Prints one JSON line. Each gets two cores and as much memory as the others, reads the same files, and starts cold.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.trails import profile
from benchmarks.trails.straightforward import DUCKDB, SPARK, queries

CORES = 2
RESERVE_MB = 1000
"""What Java and Python need besides Java's heap."""


class Outcome(msgspec.Struct):
    """What came of it. `start` is what passed before the first question; CPU and memory are of all its processes."""

    name: str
    start: float = 0.0
    seconds: float = 0.0
    steps: dict[str, float] = {}
    cpu: float = 0.0
    memory_mb: float = 0.0
    answers: dict[str, Any] = {}
    profile: dict[str, float] = {}


def spark_by_sql(trail: str, memory_mb: int) -> Outcome:
    """The straightforward version on Spark."""

    def run(spark: Any, outcome: Outcome) -> None:
        from zkms_spark.schema import read_trail

        read_trail(spark, trail).createOrReplaceTempView("trail")
        for name, sql in SPARK.views.items():
            spark.sql(sql).createOrReplaceTempView(name)
        for question, sql in queries(SPARK).items():
            began = time.monotonic()
            rows = spark.sql(sql).collect()
            outcome.steps[question] = time.monotonic() - began
            outcome.answers[question] = _answer(question, rows)

    return _on_spark("Spark, straightforward", memory_mb, run)


def spark_by_jobs(trail: str, memory_mb: int) -> Outcome:
    """The jobs."""

    def run(spark: Any, outcome: Outcome) -> None:
        from zkms_spark.schema import read_trail

        from benchmarks.trails.questions import answer

        outcome.steps, outcome.answers = answer(read_trail(spark, trail))

    return _on_spark("Spark, the jobs", memory_mb, run)


def everything(trail: str, memory_mb: int) -> Outcome:
    """All jobs, as `zkms report` runs them; the answers are what the audit found."""

    def run(spark: Any, outcome: Outcome) -> None:
        from zkms_spark.analysis import analyse

        began = time.monotonic()

        def say(stage: str) -> None:
            print(f"{time.monotonic() - began:8.1f} s  {stage}", file=sys.stderr, flush=True)

        result = analyse(spark, trail, say)
        outcome.steps = result.seconds
        names = ("violation", "topic", "sub", "producer", "first", "messages")
        outcome.answers = {
            "events": result.events,
            "messages": result.messages,
            "violations": [[row[name] for name in names] for row in result.findings if row["verdict"] == "violation"],
            "verdicts": {verdict.violation: verdict.status for verdict in result.verdicts},
        }

    return _on_spark("all jobs", memory_mb, run)


def duckdb_by_sql(trail: str, memory_mb: int) -> Outcome:
    """The straightforward version on DuckDB."""
    import duckdb

    outcome = Outcome("DuckDB, straightforward")
    with tempfile.TemporaryDirectory(prefix="zkms-duckdb-") as name, duckdb.connect() as connection:
        connection.execute(f"set threads = {CORES}; set memory_limit = '{memory_mb}MB'; set temp_directory = '{name}'")
        connection.execute("set preserve_insertion_order = false")
        connection.execute(f"create view trail as from read_parquet('{trail}/**/*.parquet', hive_partitioning = false)")
        for view, sql in DUCKDB.views.items():
            connection.execute(f"create view {view} as {sql}")
        outcome.start = _since_start()
        for question, sql in queries(DUCKDB).items():
            began = time.monotonic()
            rows = connection.execute(sql).fetchall()
            outcome.steps[question] = time.monotonic() - began
            outcome.answers[question] = _answer(question, rows)
        outcome.seconds = sum(outcome.steps.values())
    return outcome


CONTESTANTS: dict[str, Callable[[str, int], Outcome]] = {
    "sql": spark_by_sql,
    "jobs": spark_by_jobs,
    "duckdb": duckdb_by_sql,
    "everything": everything,
}


def _on_spark(name: str, memory_mb: int, run: Callable[[Any, Outcome], None]) -> Outcome:
    from zkms_spark.session import open_session

    outcome = Outcome(name)
    with _event_log() as log:
        settings = {"spark.driver.memory": f"{memory_mb - RESERVE_MB}m", "spark.eventLog.dir": log.as_uri()}
        with open_session(f"local[{CORES}]", profile.SETTINGS | settings) as spark:
            outcome.start = _since_start()
            started = profile.of_java(spark)
            began = time.monotonic()
            run(spark, outcome)
            outcome.seconds = time.monotonic() - began
            ended = profile.of_java(spark)
        (file,) = log.iterdir()
        tasks = profile.of_tasks(file)
    outcome.profile = {f"java_{key}": ended[key] - started[key] for key in ended} | tasks
    outcome.profile["java_start_cpu"] = started["cpu"]
    return outcome


@contextmanager
def _event_log() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="zkms-events-") as name:
        yield Path(name)


def _answer(question: str, rows: list[Any]) -> Any:
    """Messages counted, or ids."""
    if question == "latency":
        return sum(row[3] for row in rows)
    if question == "lost":
        return sum(row[2] for row in rows)
    return sorted(" ".join(row) for row in rows)


def _since_start() -> float:
    """Seconds that this process has lived."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def main(name: str, trail: str, memory_mb: str) -> None:
    """Run one and print what came of it."""
    outcome = CONTESTANTS[name](trail, int(memory_mb))
    ours, theirs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    outcome.cpu = ours.ru_utime + ours.ru_stime + theirs.ru_utime + theirs.ru_stime
    # Both at their highest, which need not have been at the same time: no less than there ever was.
    outcome.memory_mb = (ours.ru_maxrss + theirs.ru_maxrss) / 1024
    print(msgspec.json.encode(outcome).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
