"""The whole analysis of one trail: every job in order, and their results small enough for a page.

Each job is a function from DataFrames to DataFrames in a module of its own; this one runs them, says which is at work,
and bounds what comes back. The audit counts everything; rows are shown up to a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark import hotkeys, incidents, traffic, verdict
from zkms_spark.audit import Audit, audit
from zkms_spark.errors import NoTrail
from zkms_spark.ground import Ground, explore
from zkms_spark.lag import lag, worst
from zkms_spark.schema import read_trail
from zkms_spark.survey import Survey

Rows = list[dict[str, Any]]
SHOWN = 200
"""Rows of a table in the report; how many there are is said besides."""
STEPS = 240
"""Points of time in a plot."""
SERIES = 12
"""Lines in a plot."""
_ROUND = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
STAGES = ("survey", "audit", "traffic", "lag", "keys", "nodes")


@dataclass
class Analysis:
    """What the report is made of."""

    source: str
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


def analyse(spark: SparkSession, path: str, progress: Callable[[str], None] = lambda _stage: None) -> Analysis:
    """Analyse the exported trail below `path`; `progress` hears the name of each stage as it begins."""
    return analyse_trail(read_trail(spark, path), path, progress)


def analyse_trail(trail: DataFrame, source: str, progress: Callable[[str], None] = lambda _stage: None) -> Analysis:
    """The same of a trail that is at hand."""
    result = Analysis(source)
    began = time.monotonic()

    def stage(name: str) -> None:
        nonlocal began
        now = time.monotonic()
        if result.seconds:
            result.seconds[next(reversed(result.seconds))] = now - began
        began = now
        if name:
            result.seconds[name] = 0.0
            progress(name)

    stage("survey")
    ground = explore(trail)
    if ground.known.events == 0:
        raise NoTrail(f"the trail in {source} is empty: no event was recorded")
    trail, notes = ground.trail, ground.notes
    _describe(result, ground)
    stage("audit")
    _audit(result, _held(ground), ground)
    stage("traffic")
    cube = traffic.cube(trail, result.step).localCheckpoint()
    _traffic(result, cube)
    stage("lag")
    _lag(result, trail, notes, cube)
    stage("keys")
    keys = hotkeys.keys(trail).cache()
    result.hot_keys, result.storms = _rows(hotkeys.hot(keys)), _rows(hotkeys.storms(keys))
    keys.unpersist()
    stage("nodes")
    result.incidents = _rows(incidents.incidents(notes).orderBy(F.desc("last_at")).limit(SHOWN))
    _nodes(result, notes, cube)
    stage("")
    return result


def find_violations(spark: SparkSession, path: str) -> Rows:
    """The audit alone: violations in the exported trail below `path`, up to as many as a report shows."""
    found = _held(explore(read_trail(spark, path))).findings
    return _rows(found.where("verdict = 'violation'").orderBy("violation", "t").limit(SHOWN))


def _rows(frame: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in frame.collect()]


def _held(ground: Ground) -> Audit:
    return audit(ground.trail, ground.recorded, ground.known, ground.holes, ground.margin, ground.notes)


def _describe(result: Analysis, ground: Ground) -> None:
    known = ground.known
    result.events, result.messages = known.events, known.messages
    result.began = min(run.began - known.ahead.get(run.host, 0.0) for run in known.runs.values())
    result.ended = max(run.ended - known.ahead.get(run.host, 0.0) for run in known.runs.values())
    result.step = float(next((s for s in _ROUND if (result.ended - result.began) / s <= STEPS), _ROUND[-1]))
    result.holes = [vars(hole) for hole in ground.holes]
    result.clocks = [vars(clock) for clock in ground.clocks.values()]
    result.runs = [vars(run) for run in known.runs.values()]


def _audit(result: Analysis, found: Audit, ground: Ground) -> None:
    findings = found.findings.cache()
    counted = findings.groupBy("violation", "verdict").agg(F.count("*").alias("rows"), F.sum("messages").alias("sum"))
    counts = {(row.violation, row.verdict): (row.rows, row.sum) for row in counted.collect()}
    result.findings = _rows(findings.orderBy(F.col("verdict") != "violation", "violation", "t").limit(SHOWN))
    findings.unpersist()
    result.absent = _rows(found.absent.orderBy("fate", F.desc("messages")).limit(SHOWN))
    result.totals = found.totals
    lost = [hole for hole in ground.holes if not hole.killed]
    reason = ""
    if lost:
        lines = sum(hole.lines or 0 for hole in lost)
        reason = f"{lines:,} lines of {_names({hole.node for hole in lost})} are missing, and what they told with them"
    result.verdicts = verdict.judge(counts, _tried(ground.known), reason)


def _tried(known: Survey) -> set[str]:
    """What the trail puts to the test at all."""
    tried = {"duplicated", "out_of_order"}
    tried |= {"missed"} if known.has_live else set()
    tried |= {"lost"} if known.has_kept else set()
    tried |= {"early"} if known.has_due else set()
    tried |= {"after_expiry"} if known.has_expiry else set()
    return tried | ({"not_owner"} if known.has_epochs else set())


def _names(nodes: set[str]) -> str:
    names = sorted(nodes)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _traffic(result: Analysis, cube: DataFrame) -> None:
    totals = cube.groupBy("topic").agg(
        *(
            F.coalesce(F.sum(F.when(F.col("event") == event, F.col(what))), F.lit(0)).alias(alias)
            for event, what, alias in (
                ("published", "messages", "published"),
                ("published", "copies", "copies"),
                ("published", "bytes", "bytes"),
                ("delivered", "messages", "delivered"),
            )
        )
    )
    result.topics = _rows(
        totals.join(traffic.latency(cube, ["topic"]).drop("messages"), "topic", "left")
        .orderBy(F.desc("copies"), "topic")
        .limit(SHOWN)
    )
    busiest = [row["topic"] for row in result.topics[:SERIES]]
    few = cube.where(F.col("topic").isin(busiest)) if busiest else cube
    result.throughput = _rows(traffic.throughput(few).orderBy("topic", "step"))
    result.latency = _rows(traffic.latency(few, ["topic", "step"]).orderBy("topic", "step"))
    result.retries = _rows(traffic.retries(cube).orderBy(F.desc("redelivered"), "topic", "sub").limit(SHOWN))


def _lag(result: Analysis, trail: DataFrame, notes: DataFrame, cube: DataFrame) -> None:
    waiting = lag(trail, cube, result.step, notes).cache()
    summary = worst(waiting).join(traffic.latency(cube, ["topic", "sub"]), ["topic", "sub"], "full_outer").cache()
    result.subscriptions_in_all = summary.count()
    result.subscriptions = _rows(summary.orderBy(F.desc_nulls_last("p99"), "topic", "sub").limit(SHOWN))
    _mark_slow(result.subscriptions)
    worst_ones = sorted(_rows(summary.orderBy(F.desc_nulls_last("most")).limit(SERIES)), key=lambda r: r["sub"] or "")
    names = [row["sub"] for row in worst_ones]
    result.lag = _rows(waiting.where(F.col("sub").isin(names)).orderBy("topic", "sub", "step")) if names else []
    waiting.unpersist()
    summary.unpersist()


def _mark_slow(rows: Rows) -> None:
    """A subscription is slow beside the others of its topic: three times the median, and noticeably."""
    for row in rows:
        p99s = sorted(other["p99"] for other in rows if other["topic"] == row["topic"] and other["p99"] is not None)
        median = p99s[(len(p99s) - 1) // 2] if p99s else 0.0
        row["slow"] = row["p99"] is not None and row["p99"] > max(3 * median, 0.1)


def _nodes(result: Analysis, notes: DataFrame, cube: DataFrame) -> None:
    live = cube.where("kind = 'live'")
    away = {row["node"]: row for row in _rows(incidents.cut_off(notes))}
    gaps: dict[str, int] = {}
    for row in result.incidents:
        if row["event"] == "gap":
            gaps[row["node"]] = gaps.get(row["node"], 0) + row["times"]
    stale = {row["node"]: row for row in _rows(traffic.latency(live, ["node"]))}
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
