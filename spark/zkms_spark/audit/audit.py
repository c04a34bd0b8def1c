"""The audit: checks every guarantee against the trail, and returns each violation as a row with its evidence.

    lost          stored for a durable or group subscription, never delivered, and nothing accounts for it
    missed        the same for a live subscription, without a gap event
    duplicated    delivered again by an event that is not "redelivered"
    out_of_order  delivered after a younger message of its producer and priority; in a group, of its key as well
    early         delivered before it was due
    after_expiry  delivered after it had expired
    not_owner     acked by a process that another had taken over from

A row's verdict is `violation`, or `undecided` if the lines that would decide it are missing.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit import duplicates, missing, order, owners
from zkms_spark.audit.deadlines import untimely
from zkms_spark.audit.entries import entries, narrowed, segments, wanted
from zkms_spark.audit.ledger import KINDS, PAIR, balance, dropped, handed_over, stored
from zkms_spark.audit.numbers import name_key
from zkms_spark.audit.partitions import with_passed
from zkms_spark.audit.survey import Hole, Survey
from zkms_spark.effort import plainly, together
from zkms_spark.schema import empty, home

ROW = (
    "violation string, verdict string, topic string, sub string, producer string, first bigint, last bigint, "
    "messages bigint, node string, t double, evidence string"
)
HOLES = (
    "home string, sub string, what string, run string, i bigint, since double, until double, n bigint, text string, "
    "zxid bigint, again boolean"
)


@dataclass(frozen=True)
class Audit:
    """`findings` are the rows above; `absent` explains everything that was not delivered, by subscription."""

    findings: DataFrame
    absent: DataFrame
    totals: dict[str, int]


def audit(
    trail: DataFrame,
    recorded: DataFrame,
    known: Survey,
    holes: list[Hole],
    margin: float,
    notes: DataFrame | None = None,
) -> Audit:
    """Check the guarantees against the trail.

    `recorded` is the same with its times not corrected, `margin` how far its clocks are apart, in seconds. `notes` are
    those of the trail, if they have been gathered.
    """
    spark = trail.sparkSession
    notes = trail if notes is None else notes
    heard = handed_over(recorded).localCheckpoint()
    expired = dropped(recorded) if known.has_expired else None
    sheet = balance(stored(recorded), heard, expired).localCheckpoint()
    totals = sheet.agg(
        F.coalesce(F.bool_or("suspect"), F.lit(False)).alias("suspects"),
        F.coalesce(F.sum("stored"), F.lit(0)).alias("stored"),
        F.coalesce(F.sum("delivered"), F.lit(0)).alias("delivered"),
        F.coalesce(F.sum(F.when(F.col("stored").isNull(), F.col("delivered"))), F.lit(0)).alias("of_unknown"),
    ).first()
    assert totals is not None  # noqa: S101 - an aggregate has a row
    parts = []
    if known.has_due or known.has_expiry:
        parts.append(_untimely(recorded, margin))
    if known.has_epochs:
        parts.append(_not_owners(trail, notes))
    absent, repeated = empty(spark, _ABSENT), empty(spark, _REPEATS)
    chosen, lanes = wanted(sheet).localCheckpoint(), order.unruly(heard).localCheckpoint()
    disorder = not lanes.isEmpty()
    near = narrowed(trail, chosen, lanes) if totals.suspects and disorder else trail
    if totals.suspects:
        queues = _queues(sheet) if known.has_expiry_for_all else None
        found = together(entries(near, chosen, queues).localCheckpoint())
        rows = found.count()
        names = _Names(found.select("pair", *PAIR).distinct().localCheckpoint(), _runs(trail, known))
        with plainly(spark, rows):
            stretches = segments(found).localCheckpoint()
        gone = _fates(trail, notes, known, sheet, heard, chosen, found, stretches, names, holes, rows)
        with plainly(spark, rows):
            twice = duplicates.repeats(duplicates.doubled(found, stretches))
            repeated = names.given(twice, "again", "before").localCheckpoint()
            parts.append(_missing(gone).unionByName(_repeats(repeated)).localCheckpoint())
            absent = _absent(gone).localCheckpoint()
    if disorder:
        parts.append(_steps_back(order.steps_back(near, lanes, repeated.select("pair", "again.run", "again.i"))))
    findings = functools.reduce(DataFrame.unionByName, parts) if parts else empty(spark, ROW)
    return Audit(findings, absent, {name: totals[name] for name in ("stored", "delivered", "of_unknown")})


@dataclass(frozen=True)
class _Names:
    """What stands behind the numbers: `pairs` has pair and what it is made of, and `runs` run_key, run, node."""

    pairs: DataFrame
    runs: DataFrame

    def given(self, rows: DataFrame, *events: str) -> DataFrame:
        """With the names of their pair, and each of these structs with the `run` and `node` of its `run_key`."""
        named = rows.join(F.broadcast(self.pairs), "pair", "left")
        for event in events:
            who = self.runs.select(
                F.col("run_key").alias("_key"), F.col("run").alias("_run"), F.col("node").alias("_node")
            )
            known = F.col(event).withField("run", F.col("_run")).withField("node", F.coalesce("_node", F.lit("?")))
            named = (
                named.join(F.broadcast(who), F.col(f"{event}.run_key") == F.col("_key"), "left")
                .withColumn(event, known)
                .drop("_key", "_run", "_node")
            )
        return named


def _queues(sheet: DataFrame) -> DataFrame:
    """pair, producer, topic, sub, priority: names for the numbers, of all pairs that something was stored for."""
    return sheet.where("queue is not null").select("pair", "queue.*").distinct()


_REPEATS = "pair bigint, again struct<run: string, i: bigint>"
_ABSENT = (
    "topic string, sub string, kind string, fate string, what string, text string, messages bigint, stretches bigint"
)


def _absent(gone: DataFrame) -> DataFrame:
    """topic, sub, fate, what -> messages: explains everything that was not delivered."""
    return gone.groupBy(
        "topic", "sub", "kind", "fate", F.col("excuse.what").alias("what"), F.col("excuse.text").alias("text")
    ).agg(F.sum(F.col("past") - F.col("first")).alias("messages"), F.count("*").alias("stretches"))


def _fates(
    trail: DataFrame,
    notes: DataFrame,
    known: Survey,
    sheet: DataFrame,
    heard: DataFrame,
    chosen: DataFrame,
    found: DataFrame,
    stretches: DataFrame,
    names: _Names,
    holes: list[Hole],
    rows: int,
) -> DataFrame:
    """Explain everything that was not delivered."""
    spark = trail.sparkSession
    runs = F.broadcast(names.runs)
    named = heard.join(F.broadcast(_queues(sheet)), "pair").join(runs, "run_key")
    kind = F.element_at(F.array(*map(F.lit, KINDS)), F.col("kind")).alias("kind")
    who = missing.readers(notes, named.select("topic", "sub", kind, "run").distinct()).localCheckpoint()
    kinds = who.groupBy("home", "sub").agg(F.min("kind").alias("kind"))
    told = missing.excuses(notes)
    if holes:
        told = told.unionByName(_hole_excuses(trail, who, holes))
    with plainly(spark, rows):
        gone = missing.missing(found, stretches, _around(heard, chosen, runs))
        gone = names.given(gone, "stored", "before", "after").withColumn("home", home()).localCheckpoint()
    if known.has_groups:
        gone = with_passed(gone, trail, notes, heard, kinds)
    else:
        gone = gone.withColumn("passed_in_group", F.lit(False))
    gone, told = gone.localCheckpoint(), told.localCheckpoint()
    with plainly(spark, rows):
        return missing.fates(gone, told, missing.reads(sheet, found, told), kinds).localCheckpoint()


def _runs(trail: DataFrame, known: Survey) -> DataFrame:
    """run_key, run, node, ahead: names for the numbers, and how far the process's clock was ahead."""
    rows = [(run.run, run.node, known.ahead.get(run.host, 0.0)) for run in known.runs.values()]
    runs = trail.sparkSession.createDataFrame(rows, "run string, node string, ahead double")
    return runs.withColumn("run_key", name_key("run"))


def _around(heard: DataFrame, chosen: DataFrame, runs: DataFrame) -> DataFrame:
    """pair, first, t, i, run_key: the deliveries at the ends of blocks that are not examined."""
    pairs, blocks = F.broadcast(chosen.select("pair").distinct()), F.broadcast(chosen)
    ends = (
        F.struct(*(F.col(f"{end}_{name}").alias(name) for name in ("first", "t", "i"))) for end in ("first", "last")
    )
    return (
        heard.join(pairs, "pair", "left_semi")
        .join(blocks, ["pair", "block"], "left_anti")
        .join(runs, "run_key", "left")
        .select("pair", "run_key", "ahead", F.inline(F.array(*ends)))
        .withColumn("t", F.col("t") - F.coalesce("ahead", F.lit(0.0)))
    )


def _hole_excuses(trail: DataFrame, who: DataFrame, holes: list[Hole]) -> DataFrame:
    """Missing lines, for every subscription that they could have been about.

    A live subscription is told of by its own process alone; a purge of a durable one by any.
    """
    rows = [(hole.run, hole.since, hole.until, hole.lines, _sentence(hole)) for hole in holes]
    schema = "hole_run string, since double, until double, n bigint, text string"
    spans = F.broadcast(trail.sparkSession.createDataFrame(rows, schema))
    theirs = F.col("hole_run").isNull() | (F.col("hole_run") == F.col("run")) | (F.col("kind") != "live")
    return (
        who.join(spans, theirs)
        .withColumns({"what": F.lit("hole"), "run": F.col("hole_run"), "again": F.lit(False)})
        .withColumns({name: F.lit(None).cast("bigint") for name in ("i", "zxid")})
        .select(*(part.split()[0] for part in HOLES.split(", ")))
        .distinct()
    )


def _sentence(hole: Hole) -> str:
    lines = "lines" if hole.lines is None else "1 line" if hole.lines == 1 else f"{hole.lines:,} lines"
    return f"{lines} of {hole.node} missing: {hole.reason}"


# -- findings --------------------------------------------------------------------------------------------------------


def _row(violation: str | Column, verdict: str | Column, evidence: Column) -> list[Column | str]:
    name = F.lit(violation) if isinstance(violation, str) else violation
    judged = F.lit(verdict) if isinstance(verdict, str) else verdict
    return [
        name.alias("violation"),
        judged.alias("verdict"),
        *("topic", "sub", "producer", "first"),
        (F.col("past") - 1).alias("last"),
        (F.col("past") - F.col("first")).alias("messages"),
        *("node", "t"),
        evidence.alias("evidence"),
    ]


def _missing(gone: DataFrame) -> DataFrame:
    kind = F.when(F.col("kind") == "live", "missed").otherwise("lost")
    stored = F.concat(F.lit("stored at "), _clock("stored.t"), F.lit(" by "), F.col("stored.node"))
    after = F.concat(F.lit("; a younger one was delivered at "), _clock("after.t"))
    why = F.when(F.col("fate") == "undecided", F.concat(F.lit("; "), _undecided()))
    evidence = F.concat(stored, F.coalesce(after, F.lit("")), F.coalesce(why, F.lit("")))
    rows = gone.where("fate in ('violation', 'undecided')").withColumns(
        {"node": F.coalesce("after.node", "before.node", "stored.node"), "t": F.col("stored.t")}
    )
    return rows.select(*_row(kind, F.col("fate"), evidence))


def _undecided() -> Column:
    fewer = F.concat(F.lit("purged were only "), F.col("purged").cast("string"))
    return F.when(F.col("excuse.what") == "purged", fewer).otherwise(F.col("excuse.text"))


def _repeats(repeated: DataFrame) -> DataFrame:
    evidence = F.concat(
        *(F.lit("delivered at "), _clock("before.t"), F.lit(" to "), F.col("before.node")),
        *(F.lit(", again at "), _clock("again.t"), F.lit(" to "), F.col("again.node")),
    )
    rows = repeated.withColumns({"node": F.col("again.node"), "t": F.col("again.t")})
    return rows.select(*_row("duplicated", "violation", evidence))


def _steps_back(rows: DataFrame) -> DataFrame:
    evidence = F.concat(
        *(F.lit("delivered at "), _clock("t"), F.lit(", after "), F.col("producer")),
        *(F.lit(":"), F.col("younger").cast("string")),
    )
    return rows.select(*_row("out_of_order", "violation", evidence))


def _untimely(trail: DataFrame, margin: float) -> DataFrame:
    rows = untimely(trail, margin)
    word = F.when(F.col("violation") == "early", ", due at ").otherwise(", expired at ")
    away = F.abs(F.col("t") - F.col("deadline"))
    evidence = F.concat(
        *(F.lit("delivered at "), _clock("t"), word, _clock("deadline")),
        F.format_string(" (%.3f s away)", away),
    )
    return rows.select(*_row(F.col("violation"), "violation", evidence))


def _not_owners(trail: DataFrame, notes: DataFrame) -> DataFrame:
    evidence = F.format_string(
        "acked with epoch %d at zxid %d, after %s had taken over at zxid %d", "epoch", "zxid", "by.node", "by.zxid"
    )
    return owners.usurped(trail, notes).select(*_row("not_owner", "violation", evidence))


def _clock(column: str) -> Column:
    return F.date_format(F.timestamp_micros((F.col(column) * 1e6).cast("bigint")), "HH:mm:ss.SSS")
