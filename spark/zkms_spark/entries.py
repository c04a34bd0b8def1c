"""The entries behind the suspects of a ledger: every piece of a range with when, where and on which side it stands.

Only here are ranges taken apart, and only those of pairs that do not balance.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.ledger import LANE, PAIR
from zkms_spark.numbers import name_key, pieces
from zkms_spark.schema import happened

STORED, DELIVERED, ELSEWHERE = "stored", "delivered", "elsewhere"
"""Sides: `elsewhere` is what accounts for a message in another way, also a redelivery or an ack."""

BLOCK = 1024
"""Numbers that are joined together."""
_CARRIED = ("t", "i", "run", "node", "host", "kind", "partition", "epoch", "zxid", "event")


def entries(trail: DataFrame, suspects: DataFrame) -> DataFrame:
    """pair, side, first, past and where it comes from, for the pairs in `suspects`."""
    chosen = F.broadcast(suspects.select("pair"))
    into = (
        happened(trail, "published", "due")
        .where(F.size("subs") > 0)
        .withColumn("sub", F.explode("subs"))
        .withColumn("side", F.lit(STORED))
    )
    out = happened(trail, "delivered").withColumn("side", F.lit(DELIVERED))
    other = happened(trail, "redelivered", "acked", "nacked", "expired", "dead").where(
        F.col("seq").isNotNull() & F.col("sub").isNotNull()
    )
    rows = [
        side.select(name_key(*PAIR).alias("pair"), *PAIR, "side", *_CARRIED, pieces().alias("pieces"))
        for side in (into, out, other.withColumn("side", F.lit(ELSEWHERE)))
    ]
    known = rows[0].unionByName(rows[1]).unionByName(rows[2]).join(chosen, "pair", "left_semi")
    return known.unionByName(_for_everybody(trail, suspects)).select(
        "pair", *PAIR, "side", *_CARRIED, name_key(*LANE).alias("lane"), F.inline("pieces")
    )


def _for_everybody(trail: DataFrame, suspects: DataFrame) -> DataFrame:
    """An expiry without a subscription is one for all subscriptions that the message was stored for."""
    named = F.broadcast(suspects.where("queue is not null").select("pair", "queue.sub", "queue.topic"))
    dropped = happened(trail, "expired").where("sub is null and seq is not null").drop("sub")
    with_sub = dropped.join(named, "topic").withColumn("side", F.lit(ELSEWHERE))
    of_pair = with_sub.where(F.col("pair") == name_key(*PAIR))
    return of_pair.select("pair", *PAIR, "side", *_CARRIED, pieces().alias("pieces"))


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
