"""Who wrote the trail: processes, their hosts, how many of their lines are there, and how far apart they seem.

One pass, added up by process and producer, gives a table that is small however long the trail is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.schema import happened

LATEST_FLUSH = 10.0
"""Seconds within which lines are written, where a trail does not say."""


@dataclass
class Run:
    """One process, as far as its trail shows."""

    run: str
    node: str
    host: str
    pid: int | None = None
    lines: int = 0
    """Numbered lines that are here."""
    last_number: int = 0
    began: float = 0.0
    ended: float = 0.0
    killed: bool = False
    lost_at_end: int | None = None
    """Lines lost when a process was killed; None: not counted, or it was not killed."""
    flush: float = 0.0
    silent: float | None = None
    """Since when a process that was killed has written nothing, if it was given lines later than that."""


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
    has_expired: bool = False
    has_expiry_for_all: bool = False
    """What the trail has none of needs no looking for."""
    told: list[tuple[str | None, Hole]] = field(default_factory=list)
    """What `lost` lines say, and of which file, if not of their own."""
    stems: dict[str, str | None] = field(default_factory=dict)
    """A file's name without its number -> the process that wrote it."""
    ahead: dict[str, float] = field(default_factory=dict)
    """host -> how far its clock is ahead of the others', as far as that was found out."""

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
        "has_expired": (F.col("event") == "expired") & F.col("sub").isNotNull(),
        "has_expiry_for_all": (F.col("event") == "expired") & F.col("sub").isNull(),
    }


def counts(trail: DataFrame) -> DataFrame:
    """run, node, host, producer -> lines, numbers, times, and the shortest way from the producer's clock to ours."""
    apart = F.when(F.col("event") == "delivered", F.col("t") - F.col("at"))
    return trail.groupBy("run", "node", "host", "producer").agg(
        F.max("pid").alias("pid"),
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


def files(notes: DataFrame) -> DataFrame:
    """The lines that tell of files and of what is missing: a few for each file, however long it is."""
    rows = happened(notes, "opened", "closed", "lost")
    return rows.select("run", "node", "source", "event", "file", "at", "t", "n", "of", "reason", "flush")


def survey(trail: DataFrame, notes: DataFrame | None = None) -> Survey:
    """Survey the trail; `notes` are those of the trail, if they have been gathered."""
    found = Survey()
    seen: list[tuple[str, str, float]] = []
    for row in counts(trail).collect():
        key = row.run or f"{row.node}"
        run = found.runs.setdefault(key, Run(key, row.node or "?", row.host or row.node or "?", began=row.began))
        run.pid = row.pid
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
    _take_files(found, files(trail if notes is None else notes))
    found.began = min((run.began for run in found.runs.values()), default=0.0)
    found.ended = max((run.ended for run in found.runs.values()), default=0.0)
    return found


def _take_files(found: Survey, rows: DataFrame) -> None:
    """How each process's last file ended, and what is said of missing lines."""
    last: dict[str, tuple[int, bool]] = {}
    for row in rows.collect():
        run = found.runs.get(row.run)
        if row.event == "lost":
            if row.n != 0:
                since = row.at if row.at is not None else row.t
                reason = row.reason or "lines were lost"
                found.told.append((row.of, Hole(row.run, row.node or "?", since, row.t, row.n, reason)))
            continue
        if row.event == "opened":
            found.stems[(row.source or "").rpartition("-")[0]] = row.run
        if run is None:
            continue
        run.flush = max(run.flush, row.flush or 0.0)
        unclean = row.reason or ""
        if row.event == "closed" and unclean == "unclean":
            run.lost_at_end, run.silent = row.n, row.at
        place = (row.file or 0, row.event == "closed")
        if place >= last.get(run.run, (-1, False)):
            last[run.run] = place
            run.killed = row.event != "closed" or unclean.startswith("unclean")


def namesakes(found: Survey, margin: float = 0.0) -> list[tuple[Run, Run]]:
    """Each two processes that had one name at one time, for longer than clocks are apart."""
    pairs, last = [], None  # of those of this name that began before, the one that ended last
    for run in sorted(found.runs.values(), key=lambda run: (run.node, _began(found, run))):
        if last is None or last.node != run.node:
            last = run
            continue
        if _began(found, run) + margin < _ended(found, last):
            pairs.append((last, run))
        last = max(last, run, key=lambda each: _ended(found, each))
    return pairs


def _began(found: Survey, run: Run) -> float:
    return run.began - found.ahead.get(run.host, 0.0)


def _ended(found: Survey, run: Run) -> float:
    return run.ended - found.ahead.get(run.host, 0.0)


def holes(found: Survey) -> list[Hole]:
    """Where lines are known to be missing, and since when."""
    told = _killed(found)
    for of, hole in found.told:
        run = hole.run if of is None else found.stems.get(of.rpartition("-")[0])
        node = found.runs[run].node if run in found.runs else of or hole.node
        told.append(replace(hole, run=run, node=node))
    for each in found.runs.values():
        known = sum(hole.lines or 0 for hole in told if hole.run == each.run and not hole.killed)
        missing = each.last_number - each.lines - known
        if missing > 0:
            text = "lines are missing that no event tells of"
            told.append(Hole(each.run, each.node, each.began, each.ended, missing, text))
    return told


def _killed(found: Survey) -> list[Hole]:
    """A process that was killed takes the lines with it that it had not written yet."""
    told = []
    for run in found.runs.values():
        if run.killed and run.lost_at_end != 0:
            until = run.ended + (run.flush or LATEST_FLUSH)
            reason = "its process was killed"
            since = run.ended if run.silent is None else run.silent
            told.append(Hole(run.run, run.node, since, until, run.lost_at_end, reason, killed=True))
    return told
