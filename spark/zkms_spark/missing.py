"""What became of messages that were stored for a subscription and never delivered to it.

A missing message is *passed* when its subscription has had a younger one: then it will not come any more, and unless
something accounts for it (a gap event, a purge), it was lost. What is not passed may have been waiting when the trail
ended; giving up the subscription, or a purge of its queue, then accounts for it. Where lines of the subscription's
process are missing for that time, nobody can tell.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.entries import DELIVERED, STORED
from zkms_spark.schema import happened

SLACK = 1.0
"""Seconds between clocks of different processes that say nothing about what came first."""


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


def read_to(balance: DataFrame, entries: DataFrame) -> DataFrame:
    """topic, sub -> the greatest zxid of what was delivered to it: its queue has been read up to there."""
    whole = balance.where("not suspect and queue is not null").select("queue.topic", "queue.sub", "last_zxid")
    stored = entries.where(F.col("side") == STORED).select("pair", "topic", "sub", "first", "zxid")
    got = entries.where(F.col("side") == DELIVERED).select("pair", "first").distinct()
    partly = stored.join(got, ["pair", "first"]).select("topic", "sub", F.col("zxid").alias("last_zxid"))
    return whole.unionByName(partly).groupBy("topic", "sub").agg(F.max("last_zxid").alias("read_to"))


def excuses(notes: DataFrame) -> DataFrame:
    """What may account for a missing message: topic, sub, what (the event), when, and how many it speaks of."""
    whole = happened(notes, "gap", "purged", "unsubscribed").where("event != 'unsubscribed' or partition is null")
    return whole.select(
        "topic",
        "sub",
        F.col("event").alias("what"),
        "run",
        "i",
        F.col("t").alias("since"),
        F.col("t").alias("until"),
        "n",
        F.col("reason").alias("text"),
    )


def readers(notes: DataFrame, heard: DataFrame) -> DataFrame:
    """topic, sub, kind, run: who read for a subscription, by what it says and by `heard`, what it was handed."""
    said = happened(notes, "subscribed").select("topic", "sub", "kind", "run")
    return said.unionByName(heard).groupBy("topic", "sub", "run").agg(F.min("kind").alias("kind"))


def fates(missing: DataFrame, excuses: DataFrame, read_to: DataFrame, kinds: DataFrame) -> DataFrame:
    """Every missing stretch with its `fate`: accounted, waiting, undecided or violation, and the `excuse`.

    `missing` has `passed_in_group` besides, and `excuses` the spans of missing lines, as `hole`.
    """
    known = (
        missing.join(F.broadcast(kinds), ["topic", "sub"], "left")
        .join(F.broadcast(read_to), ["topic", "sub"], "left")
        .withColumn("passed", _is_passed())
    )
    heard = known.join(F.broadcast(excuses), ["topic", "sub"], "left").where(_is_about())
    best = F.min_by(F.struct("what", "text", "n", "since"), F.struct(F.col("what") == "hole", "since"))
    removed = F.broadcast(excuses.where("what = 'purged'").groupBy("topic", "sub").agg(F.sum("n").alias("purged")))
    found = heard.groupBy("pair", "first").agg(best.alias("excuse"))
    what = F.col("excuse.what")
    judged = known.join(found, ["pair", "first"], "left").join(removed, ["topic", "sub"], "left")
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
    youngest_first = Window.partitionBy("topic", "sub").orderBy(F.desc("stored.t"), F.desc("first"), "pair")
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


def _is_passed() -> Column:
    """A group's partitions run ahead of each other; what is known of them stands in `passed_in_group`."""
    later = F.col("after").isNotNull() | (F.col("stored.zxid") < F.col("read_to"))
    return F.coalesce(F.when(F.col("kind") == "group", F.col("passed_in_group")).otherwise(later), F.lit(False))


def _is_about() -> Column:
    """Whether an excuse falls between the deliveries around the stretch."""
    numbered = F.col("i").isNotNull()  # a span of missing lines has only times
    same_before, same_after = (numbered & (F.col("run") == F.col(f"{side}.run")) for side in ("before", "after"))
    not_before = F.when(same_before, F.col("i") > F.col("before.i")).otherwise(
        F.col("until") >= F.col("before.t") - SLACK
    )
    not_after = F.when(same_after, F.col("i") < F.col("after.i")).otherwise(F.col("since") <= F.col("after.t") + SLACK)
    stored_first = F.col("until") >= F.col("stored.t") - SLACK
    between = F.coalesce(not_before, F.lit(True)) & F.coalesce(not_after, F.lit(True)) & stored_first
    # Giving up a subscription explains what had not come yet, not what was left out before.
    return between & (~F.col("passed") | (F.col("what") != "unsubscribed"))
