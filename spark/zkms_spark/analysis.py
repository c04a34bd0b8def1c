"""The whole analysis of one trail: every job in order, and their results small enough for a page.

Each job is a function from DataFrames to DataFrames in a module of its own, and `jobs` has them by name; this one runs
them, says which is at work, and bounds what comes back. The audit counts everything; rows are shown up to a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark import jobs
from zkms_spark.audit import verdict
from zkms_spark.audit.survey import Run, namesakes
from zkms_spark.material import Material, material
from zkms_spark.schema import read_trail

Rows = list[dict[str, Any]]
SHOWN = 200
"""The most rows of a table in the report, which also says how many there are."""
KEYS = 20
"""The most rows of the table of keys."""
STEPS = 240
"""Points of time in a plot."""
SERIES = 12
"""Lines in a plot."""
_ROUND = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
STAGES = ("survey", "audit", "traffic", "lag", "keys", "nodes")


@dataclass
class Analysis:
    """The results for the report."""

    source: str
    warnings: list[str] = field(default_factory=list)
    """Bad lines and files that the export found, if known."""
    events: int = 0
    messages: int = 0
    began: float = 0.0
    ended: float = 0.0
    step: float = 60.0
    verdicts: list[verdict.Verdict] = field(default_factory=list)
    findings: Rows = field(default_factory=list)
    absent: Rows = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    holes: Rows = field(default_factory=list)
    clocks: Rows = field(default_factory=list)
    runs: Rows = field(default_factory=list)
    namesakes: list[tuple[Run, Run]] = field(default_factory=list)
    topics: Rows = field(default_factory=list)
    subscriptions: Rows = field(default_factory=list)
    subscriptions_in_all: int = 0
    throughput: Rows = field(default_factory=list)
    latency: Rows = field(default_factory=list)
    lag: Rows = field(default_factory=list)
    retries: Rows = field(default_factory=list)
    incidents: Rows = field(default_factory=list)
    hot_keys: Rows = field(default_factory=list)
    storms: Rows = field(default_factory=list)
    nodes: Rows = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def overall(self) -> str:
        """The audit's verdict in one word."""
        return verdict.overall(self.verdicts)


def analyse(
    spark: SparkSession,
    path: str,
    progress: Callable[[str], None] = lambda _stage: None,
    tables: jobs.Tables | None = None,
) -> Analysis:
    """Analyse the exported trail below `path`; `progress` is called with the name of each stage as it begins.

    `tables`, if there are any to be written, are written besides.
    """
    return analyse_trail(read_trail(spark, path), path, progress, tables)


def analyse_trail(
    trail: DataFrame,
    source: str,
    progress: Callable[[str], None] = lambda _stage: None,
    tables: jobs.Tables | None = None,
) -> Analysis:
    """Analyse a trail that is already read."""
    result = Analysis(source)
    began = time.monotonic()
    progress(STAGES[0])
    with material(trail, source) as made:
        _describe(result, made)
        result.seconds[STAGES[0]] = time.monotonic() - began
        for name, stage in zip(STAGES[1:], (_audit, _traffic, _lag, _keys, _nodes), strict=True):
            began = time.monotonic()
            progress(name)
            stage(result, made)
            result.seconds[name] = time.monotonic() - began
        if tables is not None:
            tables.write(made, progress)
    return result


def make_tables(
    spark: SparkSession, path: str, tables: jobs.Tables, progress: Callable[[str], None] = lambda _stage: None
) -> Analysis:
    """Only these tables, of the exported trail below `path`; what comes back says who wrote it, and no more."""
    result = Analysis(path)
    progress(STAGES[0])
    with material(read_trail(spark, path), path) as made:
        _describe(result, made)
        tables.write(made, progress)
    return result


def find_violations(spark: SparkSession, path: str) -> Rows:
    """The audit alone: violations in the exported trail below `path`, up to as many as a report shows."""
    with material(read_trail(spark, path), path) as made:
        found = jobs.findings(made, 0.0).where("verdict = 'violation'")
        return _rows(found.orderBy("violation", "t").limit(SHOWN))


def _rows(frame: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _describe(result: Analysis, made: Material) -> None:
    ground = made.ground
    known = ground.known
    result.events, result.messages = known.events, known.messages
    result.began = min(run.began - known.ahead.get(run.host, 0.0) for run in known.runs.values())
    result.ended = max(run.ended - known.ahead.get(run.host, 0.0) for run in known.runs.values())
    result.step = float(next((s for s in _ROUND if (result.ended - result.began) / s <= STEPS), _ROUND[-1]))
    result.holes = [vars(hole) for hole in ground.holes]
    result.clocks = [vars(clock) for clock in ground.clocks.values()]
    result.runs = [vars(run) for run in known.runs.values()]
    result.namesakes = namesakes(known, ground.margin)


def _audit(result: Analysis, made: Material) -> None:
    result.verdicts = made.verdicts
    findings, absent = jobs.findings(made, result.step), jobs.absent(made, result.step)
    result.findings = _rows(findings.orderBy(F.col("verdict") != "violation", "violation", "t").limit(SHOWN))
    result.absent = _rows(absent.orderBy("fate", F.desc("messages")).limit(SHOWN))
    result.totals = made.audit.totals


def _traffic(result: Analysis, made: Material) -> None:
    result.topics = _rows(jobs.topics(made, result.step).orderBy(F.desc("copies"), "topic").limit(SHOWN))
    busiest = [row["topic"] for row in result.topics[:SERIES]]
    few = F.col("topic").isin(busiest) if busiest else F.lit(True)
    result.throughput = _rows(jobs.throughput(made, result.step).where(few).orderBy("topic", "step"))
    result.latency = _rows(jobs.topic_latency(made, result.step).where(few).orderBy("topic", "step"))
    retried = jobs.retries(made, result.step).orderBy(F.desc("redelivered"), "topic", "sub")
    result.retries = _rows(retried.limit(SHOWN))


def _lag(result: Analysis, made: Material) -> None:
    summary = jobs.subscriptions(made, result.step).cache()
    result.subscriptions_in_all = summary.count()
    result.subscriptions = _rows(summary.orderBy(F.desc_nulls_last("p99"), "topic", "sub").limit(SHOWN))
    _mark_slow(result.subscriptions)
    worst = _rows(summary.orderBy(F.desc_nulls_last("most")).limit(SERIES))
    names = sorted({row["sub"] or "" for row in worst})
    waiting = jobs.lag(made, result.step).where(F.col("sub").isin(names))
    result.lag = _rows(waiting.orderBy("topic", "sub", "step")) if names else []
    summary.unpersist()


def _keys(result: Analysis, made: Material) -> None:
    keys, storms = jobs.hot_keys(made, result.step), jobs.storms(made, result.step)
    result.hot_keys = _rows(keys.orderBy(F.desc("messages"), "topic", "key").limit(KEYS))
    result.storms = _rows(storms.orderBy(F.desc("burst"), "topic", "key").limit(KEYS))


def _mark_slow(rows: Rows) -> None:
    """A subscription is slow beside the others of its topic: three times the median, and noticeably."""
    for row in rows:
        p99s = sorted(other["p99"] for other in rows if other["topic"] == row["topic"] and other["p99"] is not None)
        median = p99s[(len(p99s) - 1) // 2] if p99s else 0.0
        row["slow"] = row["p99"] is not None and row["p99"] > max(3 * median, 0.1)


def _nodes(result: Analysis, made: Material) -> None:
    result.incidents = _rows(jobs.incidents(made, result.step).orderBy(F.desc("last_at")).limit(SHOWN))
    away = {row["node"]: row for row in _rows(jobs.cut_off(made, result.step))}
    gaps: dict[str, int] = {}
    for row in result.incidents:
        if row["event"] == "gap":
            gaps[row["node"]] = gaps.get(row["node"], 0) + row["times"]
    stale = {row["node"]: row for row in _rows(jobs.staleness(made, result.step))}
    offsets = {row["host"]: row for row in result.clocks}
    nodes: dict[str, dict[str, Any]] = {}
    for run in result.runs:
        clock = offsets.get(run["host"], {})
        node = nodes.setdefault(
            run["node"], {"node": run["node"], "host": run["host"], "killed": False, "lost_lines": 0, "processes": 0}
        )
        node |= {"offset": clock.get("offset"), "error": clock.get("error")}
        node["killed"] |= run["killed"]
        node["processes"] += 1
    for hole in result.holes:
        if hole["node"] in nodes:
            nodes[hole["node"]]["lost_lines"] += hole["lines"] or 0
    for name, node in nodes.items():
        node |= {key: stale.get(name, {}).get(key) for key in ("messages", "p50", "p99", "slowest")}
        node |= {key: away.get(name, {}).get(key) for key in ("seconds", "times", "expired")}
        node["gaps"] = gaps.get(name, 0)
    result.nodes = sorted(nodes.values(), key=lambda node: (-(node["p99"] or 0.0), node["node"]))
