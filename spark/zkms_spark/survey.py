"""Who wrote the trail: processes, their hosts, how many of their lines are there, and how far apart they seem.

One pass, added up by process and producer, gives a table that is small however long the trail is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.schema import happened

LATEST_FLUSH = 10.0
"""Seconds within which lines are written, where a trail does not say."""


@dataclass
class Run:
    """One process, as far as its trail tells."""

    run: str
    node: str
    host: str
    lines: int = 0
    """Numbered lines that are here."""
    last_number: int = 0
    began: float = 0.0
    ended: float = 0.0
    killed: bool = False


@dataclass
class Hole:
    """A span of a process's time in which lines are known to be missing; `run` None: nobody knows whose."""

    run: str | None
    node: str
    since: float
    until: float
    lines: int | None
    reason: str
    killed: bool = False
    """These are the last lines of a process that was killed; of any other, lines are missing in the middle."""


@dataclass
class Survey:
    """All of them."""

    runs: dict[str, Run] = field(default_factory=dict)
    producer_host: dict[str, str] = field(default_factory=dict)
    apart: dict[tuple[str, str], float] = field(default_factory=dict)
    """(host of the producer, host of the subscriber) -> least difference between `at` and the time of delivery."""
    events: int = 0
    messages: int = 0
    began: float = 0.0
    ended: float = 0.0
    has_live: bool = False
    has_kept: bool = False
    has_groups: bool = False
    has_due: bool = False
    has_expiry: bool = False
    has_epochs: bool = False
    """What the trail has none of needs no looking for."""

    @property
    def hosts(self) -> list[str]:
        """Every clock."""
        return sorted({run.host for run in self.runs.values()})


def _tests() -> dict[str, Column]:
    kind = F.coalesce("kind", F.lit(""))
    return {
        "has_live": kind == "live",
        "has_kept": kind.isin("durable", "group"),
        "has_groups": kind == "group",
        "has_due": F.col("event").isin("delayed", "due"),
        "has_expiry": F.col("expires").isNotNull(),
        "has_epochs": F.col("epoch").isNotNull(),
    }


def counts(trail: DataFrame) -> DataFrame:
    """run, node, host, producer -> lines, numbers, times, and the shortest way from the producer's clock to ours."""
    apart = F.when(F.col("event") == "delivered", F.col("t") - F.col("at"))
    return trail.groupBy("run", "node", "host", "producer").agg(
        F.count_if(F.col("i") > 0).alias("lines"),
        F.max("i").alias("last_number"),
        F.min("t").alias("began"),
        F.max("t").alias("ended"),
        F.min(apart).alias("apart"),
        F.count_if(F.col("event").isin("published", "delayed")).alias("published"),
        F.sum(F.when(F.col("event") == "published", F.col("n"))).alias("messages"),
        F.count("*").alias("events"),
        *(F.max(test).alias(name) for name, test in _tests().items()),
    )


def endings(trail: DataFrame) -> DataFrame:
    """run -> whether its last file has a last line, and whether that says it was killed."""
    last = F.max_by(F.struct("event", "reason"), F.struct("file", F.col("event") == "closed"))
    return happened(trail, "opened", "closed").groupBy("run").agg(last.alias("last"))


def survey(trail: DataFrame) -> Survey:
    """Take stock."""
    found = Survey()
    seen: list[tuple[str, str, float]] = []
    for row in counts(trail).toLocalIterator():
        key = row.run or f"{row.node}"
        run = found.runs.setdefault(key, Run(key, row.node or "?", row.host or row.node or "?", began=row.began))
        run.lines += row.lines
        run.last_number = max(run.last_number, row.last_number or 0)
        run.began, run.ended = min(run.began, row.began), max(run.ended, row.ended)
        found.events += row.events
        found.messages += row.messages or 0
        for name in (each for each in vars(found) if each.startswith("has_")):
            setattr(found, name, getattr(found, name) or row[name])
        if row.producer is not None and row.published:
            found.producer_host[row.producer] = run.host
        if row.producer is not None and row.apart is not None:
            seen.append((row.producer, run.host, row.apart))
    for producer, host, apart in seen:
        source = found.producer_host.get(producer)
        if source is not None:
            edge = (source, host)
            found.apart[edge] = min(apart, found.apart.get(edge, apart))
    for row in endings(trail).collect():
        if row.run in found.runs:
            found.runs[row.run].killed = row.last.event != "closed" or (row.last.reason or "").startswith("unclean")
    found.began = min((run.began for run in found.runs.values()), default=0.0)
    found.ended = max((run.ended for run in found.runs.values()), default=0.0)
    return found


def holes(trail: DataFrame, found: Survey) -> list[Hole]:
    """Where lines are known to be missing, and since when."""
    told = _killed(trail, found)
    stems = happened(trail, "opened").select("source", "run").distinct().collect()
    run_of = {(row.source or "").rpartition("-")[0]: row.run for row in stems}
    for row in happened(trail, "lost").select("run", "node", "at", "t", "n", "of", "reason").collect():
        if row.n == 0:
            continue
        run = row.run if row.of is None else run_of.get(row.of.rpartition("-")[0])
        node = found.runs[run].node if run in found.runs else row.of or row.node or "?"
        since = row.at if row.at is not None else row.t
        told.append(Hole(run, node, since, row.t, row.n, row.reason or "lines were lost"))
    for run in found.runs.values():
        known = sum(hole.lines or 0 for hole in told if hole.run == run.run and not hole.killed)
        missing = run.last_number - run.lines - known
        if missing > 0:
            text = "lines are missing that no event tells of"
            told.append(Hole(run.run, run.node, run.began, run.ended, missing, text))
    return told


def _killed(trail: DataFrame, found: Survey) -> list[Hole]:
    """A process that was killed takes the lines with it that it had not written yet."""
    ends = {row.run: row for row in happened(trail, "closed").where("reason = 'unclean'").select("run", "n").collect()}
    opened = happened(trail, "opened").groupBy("run").agg(F.max("flush").alias("flush")).collect()
    flush = {row.run: row.flush for row in opened}
    told = []
    for run in found.runs.values():
        end = ends.get(run.run)
        lines = end.n if end is not None else None
        if run.killed and lines != 0:
            until = run.ended + (flush.get(run.run) or LATEST_FLUSH)
            told.append(Hole(run.run, run.node, run.ended, until, lines, "its process was killed", killed=True))
    return told
