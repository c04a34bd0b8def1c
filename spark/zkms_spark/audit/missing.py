"""Explains messages that were stored for a subscription and never delivered to it.

A missing message is *passed* when its subscription has had a younger one: then it will not come any more, and unless
something accounts for it (a gap event, a purge), it was lost. What is not passed may have been waiting when the trail
ended; giving up the subscription, or a purge of its queue, then accounts for it, also if somebody has taken that name
again since, and got younger ones. If lines of the subscription's process are missing for that time, it is undecided.
A queue has a `home`, its topic or pattern, and is read in order within a priority, the higher ones first.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit.entries import DELIVERED, STORED
from zkms_spark.audit.ledger import PAIR
from zkms_spark.schema import happened, home

SLACK = 1.0
"""Seconds between clocks of different processes that say nothing about what came first."""
TAKES = 10.0
"""Seconds within which a group delivers, as far as can be told: what its other partitions deliver says nothing."""


def missing(entries: DataFrame, segments: DataFrame, around: DataFrame) -> DataFrame:
    """Stretches stored and not delivered: pair, first, past, how they were `stored`, the deliveries around them.

    `before` is the last delivery of a smaller number of the same producer, `after` the first of a greater one; `around`
    are deliveries of blocks that have no entries. Processes and queues are numbers, as everything is sorted here.
    """
    gone = segments.where("stored > 0 and delivered = 0 and elsewhere = 0")
    stored, delivery = F.struct("t", "i", "run_key", "zxid"), F.struct("t", "i", "run_key")
    nothing = F.lit(None)
    facts = entries.where(F.col("side").isin(STORED, DELIVERED)).select(
        "pair",
        "first",
        F.when(F.col("side") == STORED, stored).alias("stored"),
        F.when(F.col("side") == DELIVERED, delivery).alias("delivery"),
        nothing.cast("bigint").alias("asked"),
    )
    kinds = {name: facts.schema[name].dataType for name in ("stored", "delivery")}
    neighbours = around.select(
        "pair",
        "first",
        nothing.cast(kinds["stored"]).alias("stored"),
        delivery.alias("delivery"),
        nothing.cast("bigint").alias("asked"),
    )
    questions = gone.select(
        "pair",
        "first",
        *(nothing.cast(kind).alias(name) for name, kind in kinds.items()),
        F.col("past").alias("asked"),
    )
    line = Window.partitionBy("pair").orderBy("first", F.col("asked").isNotNull())
    earlier = line.rowsBetween(Window.unboundedPreceding, -1)
    # What follows is what came before from the other end: a frame that reaches to the end costs a pass for each row.
    later = Window.partitionBy("pair").orderBy(F.desc("first")).rowsBetween(Window.unboundedPreceding, -1)
    return (
        facts.unionByName(neighbours)
        .unionByName(questions)
        .select(
            "pair",
            "first",
            F.col("asked").alias("past"),
            F.last("stored", True).over(earlier).alias("stored"),
            F.last("delivery", True).over(earlier).alias("before"),
            F.last("delivery", True).over(later).alias("after"),
        )
        .where("past is not null")
    )


def reads(balance: DataFrame, entries: DataFrame, excuses: DataFrame) -> DataFrame:
    """home, sub -> reads: the greatest zxids of what was delivered to it, by priority: it was read up to there.

    One that was given up and made anew has them for each of its lives.
    """
    whole = balance.where("not suspect and queue is not null").select("queue.*", "last_zxid")
    stored = entries.where(F.col("side") == STORED).select("pair", *PAIR, "first", F.col("zxid").alias("last_zxid"))
    got = entries.where(F.col("side") == DELIVERED).select("pair", "first").distinct()
    partly = stored.join(got, ["pair", "first"]).select(*whole.columns)
    ends = excuses.where("what = 'unsubscribed' and again").groupBy("home", "sub")
    lives = F.broadcast(ends.agg(F.collect_list("zxid").alias("ends")))
    life = F.coalesce(F.size(F.filter("ends", lambda end: end < F.col("last_zxid"))), F.lit(0))
    return (
        whole.unionByName(partly)
        .select(home(), "sub", F.coalesce("priority", F.lit(0)).alias("priority"), "last_zxid")
        .join(lives, ["home", "sub"], "left")
        .groupBy("home", "sub", "priority", life.alias("life"))
        .agg(F.max("last_zxid").alias("zxid"))
        .groupBy("home", "sub")
        .agg(F.collect_list(F.struct("priority", "zxid")).alias("reads"))
    )


def excuses(notes: DataFrame) -> DataFrame:
    """What may account for a missing message: home, sub, what (the event), when, and how many it speaks of.

    `again` of what was given up: somebody took it up again, later.
    """
    whole = happened(notes, "gap", "purged", "subscribed", "unsubscribed").withColumn("home", home())
    taken = F.max(F.when(F.col("event") == "subscribed", F.col("zxid"))).over(Window.partitionBy("home", "sub"))
    again = (F.col("event") == "unsubscribed") & (F.col("zxid") < taken)
    return (
        whole.withColumn("again", F.coalesce(again, F.lit(False)))
        .where("event != 'subscribed'")
        .select(
            "home",
            "sub",
            F.col("event").alias("what"),
            "run",
            "i",
            F.col("t").alias("since"),
            F.col("t").alias("until"),
            "n",
            F.col("reason").alias("text"),
            "zxid",
            "again",
        )
    )


def readers(notes: DataFrame, heard: DataFrame) -> DataFrame:
    """home, sub, kind, run: who read for a subscription, by what it says and by `heard`, what it was handed."""
    said = happened(notes, "subscribed").select("topic", "sub", "kind", "run")
    return said.unionByName(heard).groupBy(home(), "sub", "run").agg(F.min("kind").alias("kind"))


def fates(missing: DataFrame, excuses: DataFrame, reads: DataFrame, kinds: DataFrame) -> DataFrame:
    """Every missing stretch with its `fate`: accounted, waiting, undecided or violation, and the `excuse`.

    `missing` has `home` and `passed_in_group` besides, and `excuses` the spans of missing lines, as `hole`.
    """
    queue = ["home", "sub"]
    known = (
        missing.join(F.broadcast(kinds), queue, "left")
        .join(F.broadcast(reads), queue, "left")
        .withColumn("passed", _is_passed())
    )
    heard = known.join(F.broadcast(excuses), queue, "left").where(_is_about())
    best = F.min_by(F.struct("what", "text", "n", "since"), F.struct(F.col("what") == "hole", "since"))
    removed = F.broadcast(excuses.where("what = 'purged'").groupBy(*queue).agg(F.sum("n").alias("purged")))
    found = heard.groupBy("pair", "first").agg(best.alias("excuse"))
    what = F.col("excuse.what")
    judged = known.join(found, ["pair", "first"], "left").join(removed, queue, "left")
    return _split(judged).withColumn(
        "fate",
        F.when((what == "hole") | ~F.col("covered"), "undecided")
        .when(what.isNotNull(), "accounted")
        .when(F.col("passed"), "violation")
        .otherwise("waiting"),
    )


def _split(judged: DataFrame) -> DataFrame:
    """A purge says how many messages it removed, and these were the youngest: of older ones it tells nothing.

    So a stretch that it covers in part becomes two; `covered` says which is which.
    """
    purged = F.coalesce(F.col("excuse.what") == "purged", F.lit(False))
    length = F.col("past") - F.col("first")
    youngest_first = Window.partitionBy("home", "sub").orderBy(F.desc("stored.t"), F.desc("first"), "pair")
    so_far = F.sum(F.when(purged, length).otherwise(0)).over(youngest_first)
    room = F.greatest(F.lit(0), F.col("purged") - (so_far - length))
    covered = F.when(purged, F.least(length, room)).otherwise(length)
    cut = F.col("past") - F.col("taken")
    parts = F.array(
        F.struct(F.col("first").alias("first"), cut.alias("past"), F.lit(False).alias("covered")),
        F.struct(cut.alias("first"), F.col("past").alias("past"), F.lit(True).alias("covered")),
    )
    kept = [name for name in judged.columns if name not in ("first", "past")]
    return (
        judged.withColumn("taken", covered.cast("bigint"))
        .withColumn("part", F.explode(F.filter(parts, lambda part: part["past"] > part["first"])))
        .select(*kept, "part.first", "part.past", "part.covered")
    )


def _read_to(before: Column | None = None) -> Column:
    """How far the queue has been read, or had been before a zxid, where it is read before or with the stretch."""

    def counts(read: Column) -> Column:
        urgent = read["priority"] <= F.coalesce("priority", F.lit(0))
        return urgent if before is None else urgent & (read["zxid"] < before)

    return F.array_max(F.transform(F.filter("reads", counts), lambda read: read["zxid"]))


def _is_passed() -> Column:
    """A group's partitions run ahead of each other; what is known of them stands in `passed_in_group`.

    What was stored late, when it was due, is not passed by what was delivered before that.
    """
    overtaken = F.col("stored.zxid") < _read_to()
    later = F.col("after.t") >= F.col("stored.t") - SLACK
    in_group = F.col("passed_in_group") & F.coalesce(overtaken, F.lit(True))
    alone = F.coalesce(later, F.lit(False)) | F.coalesce(overtaken, F.lit(False))
    return F.coalesce(F.when(F.col("kind") == "group", in_group).otherwise(alone), F.lit(False))


def _is_about() -> Column:
    """Whether an excuse falls between the deliveries around the stretch.

    In a group those may be of other partitions, and what happened to its own may have been told of earlier or later.
    """
    numbered = F.col("i").isNotNull()  # a span of missing lines has only times
    same_before, same_after = (numbered & (F.col("run") == F.col(f"{side}.run")) for side in ("before", "after"))
    not_before = F.when(same_before, F.col("i") > F.col("before.i")).otherwise(
        F.col("until") >= F.col("before.t") - SLACK
    )
    not_after = F.when(same_after, F.col("i") < F.col("after.i")).otherwise(F.col("since") <= F.col("after.t") + SLACK)
    in_group = F.coalesce(F.col("kind") == "group", F.lit(False))
    soon = (F.col("what") != "hole") | (F.col("since") <= F.col("stored.t") + TAKES)
    around = F.coalesce(not_before, F.lit(True)) & F.coalesce(not_after, F.lit(True))
    between = F.when(in_group, soon).otherwise(around)
    stored_first = F.col("until") >= F.col("stored.t") - SLACK
    given_up = F.col("what") == "unsubscribed"
    return between & stored_first & (~given_up | _was_waiting(in_group))


def _was_waiting(in_group: Column) -> Column:
    """Whether a stretch had not been left out when its subscription was given up: that explains what was still to come.

    If it was taken up again, younger ones have come since; those before count.
    """
    there = F.coalesce(F.col("stored.zxid") < F.col("zxid"), F.lit(True))
    not_passed = F.coalesce(_read_to(F.col("zxid")) <= F.col("stored.zxid"), F.lit(True))
    return there & (~F.col("passed") | (F.col("again") & (in_group | not_passed)))
