"""The entries behind the suspects of a ledger: every piece of a range with when, where and on which side it stands.

Only here are ranges taken apart, and only those of blocks that do not balance.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit.ledger import BLOCK_BITS, LANE, PAIR, block_of
from zkms_spark.audit.numbers import by_range, lane_key, maker_key, name_key
from zkms_spark.effort import together
from zkms_spark.schema import happened

STORED, DELIVERED, ELSEWHERE = "stored", "delivered", "elsewhere"
"""Sides: `elsewhere` accounts for a message in another way, also by a redelivery or an ack."""

BLOCK = 1024
"""Numbers that are joined together."""
_CARRIED = ("t", "i", "epoch", "zxid")
_RANGE = ("seq", "n", "places")
_ENDS = ("first", "past")
_KEPT = tuple(dict.fromkeys((*LANE, *PAIR, *_CARRIED, *_RANGE, "event", "run", "node", "kind")))
"""What a delivery says of itself that `entries` or `order` want to know."""
ACCOUNTS = ("redelivered", "acked", "nacked", "expired", "dead")


def wanted(sheet: DataFrame) -> DataFrame:
    """pair, maker, block: the suspect ones, and all whose ranges could reach into these, or these into them.

    `maker` is null for a pair that nothing was ever stored for.
    """
    suspect = sheet.where("suspect")
    pairs = F.broadcast(suspect.select("pair").distinct())
    makers = sheet.join(pairs, "pair", "left_semi").groupBy("pair").agg(F.max("maker").alias("maker"))
    longest = sheet.agg(F.max(F.col("reach") - F.shiftleft("block", BLOCK_BITS)).alias("longest"))
    reached = block_of(F.col("reach") - 1)
    return (
        suspect.drop("maker")
        .join(F.broadcast(makers), "pair")
        .join(F.broadcast(longest))
        .withColumn("before", F.shiftright(F.col("longest") - 1, BLOCK_BITS))
        .select("pair", "maker", F.explode(F.sequence(F.col("block") - F.col("before"), reached)).alias("block"))
        .distinct()
    )


def narrowed(trail: DataFrame, wanted: DataFrame, lanes: DataFrame) -> DataFrame:
    """The trail with no deliveries but those of the blocks in `wanted` and of these lanes.

    They are few, and cached, so that later steps do not read all others again.
    """
    rows = (
        by_range(happened(trail, "delivered").select(*_KEPT))
        .withColumns({"pair": name_key(*PAIR), "block": block_of(F.col("first"))})
        .withColumn("lane", lane_key())
    )
    blocks = F.broadcast(wanted.select("pair", "block", F.lit(1).alias("of_block")))
    unruly = F.broadcast(lanes.select("lane", F.lit(1).alias("of_lane")))
    kept = (
        rows.join(blocks, ["pair", "block"], "left")
        .join(unruly, "lane", "left")
        .where("of_block = 1 or of_lane = 1")
        .withColumns({"seq": F.col("first"), "n": F.col("past") - F.col("first")})
        .withColumn("places", F.lit(None).cast(trail.schema["places"].dataType))
        .select(*_KEPT)
        .localCheckpoint()
    )
    return trail.where("event != 'delivered'").unionByName(together(kept), allowMissingColumns=True)


def entries(
    trail: DataFrame, wanted: DataFrame, queues: DataFrame | None, accounts: Sequence[str] = ACCOUNTS
) -> DataFrame:
    """pair, its names, side, first, past and where it comes from, for the blocks in `wanted`.

    `queues` are the pairs with their names, if there are expiries that do not name their subscription. `accounts` are
    the events that stand `elsewhere`.
    """
    chosen = F.broadcast(wanted.select("pair", "block"))
    # Picked by their makers first: spread out to all of their subscriptions, publishes are many times as many.
    made = F.broadcast(wanted.where("maker is not null").select("maker", "block").distinct())
    into = (
        by_range(happened(trail, "published", "due").where(F.size("subs") > 0))
        .withColumns({"maker": maker_key(), "block": block_of(F.col("first"))})
        .join(made, ["maker", "block"], "left_semi")
        .withColumns({"sub": F.explode("subs"), "side": F.lit(STORED)})
    )
    out = happened(trail, "delivered", *accounts).where("seq is not null and sub is not null")
    side = F.when(F.col("event") == "delivered", DELIVERED).otherwise(ELSEWHERE)
    rows = [
        each.select(name_key(*PAIR).alias("pair"), *PAIR, "side", name_key("run").alias("run_key"), *_CARRIED, *_ENDS)
        for each in (into, by_range(out.withColumn("side", side)))
    ]
    found = rows[0].unionByName(rows[1])
    if queues is not None:
        found = found.unionByName(_for_everybody(trail, queues, found.columns))
    return (
        found.withColumn("block", block_of(F.col("first")))
        .join(chosen, ["pair", "block"], "left_semi")
        .select("pair", *PAIR, "side", "run_key", *_CARRIED, *_ENDS)
    )


def _for_everybody(trail: DataFrame, queues: DataFrame, columns: list[str]) -> DataFrame:
    """An expiry without a subscription is one for all subscriptions that the message was stored for."""
    named = F.broadcast(queues.select("pair", *PAIR))
    dropped = by_range(happened(trail, "expired").where("sub is null and seq is not null").drop("sub", "priority"))
    numbered = dropped.withColumns({"side": F.lit(ELSEWHERE), "run_key": name_key("run")})
    return numbered.join(named, ["producer", "topic"]).select(*columns)


def segments(entries: DataFrame, *, atomic: bool = False) -> DataFrame:
    """pair, first, past, stored, delivered, elsewhere: how often each stretch of numbers stands on each side.

    Stretches of many frames are one, unless `atomic`, when none reaches past an end of any entry.
    """
    sides = (STORED, DELIVERED, ELSEWHERE)
    steps = entries.select(
        "pair",
        F.inline(
            F.array(
                F.struct(F.col("first").alias("number"), "side", F.lit(1).alias("step")),
                F.struct(F.col("past").alias("number"), "side", F.lit(-1).alias("step")),
            )
        ),
    )
    changes = steps.groupBy("pair", "number").agg(
        *(F.sum(F.when(F.col("side") == side, F.col("step")).otherwise(0)).alias(side) for side in sides)
    )
    if not atomic:  # where one frame ends and the next begins nothing changes
        changes = changes.where(" or ".join(f"{side} != 0" for side in sides))
    ascending = Window.partitionBy("pair").orderBy("number")
    return changes.select(
        "pair",
        F.col("number").alias("first"),
        F.lead("number").over(ascending).alias("past"),
        *(F.sum(side).over(ascending.rowsBetween(Window.unboundedPreceding, 0)).alias(side) for side in sides),
    ).where("past is not null")


def overlapping(left: DataFrame, right: DataFrame) -> DataFrame:
    """Join on pair and overlap: `first`, `past` of the left with `a`, `b` of the right.

    By blocks of numbers, so that long lists on both sides do not meet row by row.
    """
    blocks = left.withColumn("block", F.explode(_blocks("first", "past")))
    others = right.withColumn("block", F.explode(_blocks("a", "b")))
    # Of the blocks that both are in, the first one alone has the match.
    once = F.col("block") == F.greatest("first", "a") - F.pmod(F.greatest("first", "a"), F.lit(BLOCK))
    return blocks.join(others, ["pair", "block"]).where("first < b and past > a").where(once).drop("block")


def _blocks(first: str, past: str) -> Column:
    start = F.col(first) - F.pmod(F.col(first), F.lit(BLOCK))
    return F.sequence(start, F.col(past) - 1, F.lit(BLOCK).cast("bigint"))
