"""The ledger: for every producer, topic and subscription, what was stored for it against what was delivered to it.

Both sides are sums over ranges (`numbers`), so that a trail of any length is one pass: publishes are added up by their
list of subscriptions before that list is spread out, deliveries after one shuffle that also serves the check of their
order. Where both sides agree and nothing was out of order, there is nothing to look at; the rest are `suspects`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.numbers import end_number, first_number, name_key, range_print
from zkms_spark.schema import happened

PAIR = ("producer", "topic", "sub")
LANE = (*PAIR, "partition")
"""Where deliveries are in order: to a subscription, or to one partition of a group."""


def stored(trail: DataFrame) -> DataFrame:
    """pair -> stored, stored_print, last_zxid: what was put into the queues."""
    by_list = (
        happened(trail, "published", "due")
        .where(F.size("subs") > 0)
        .select("producer", "topic", "subs", "n", "zxid", range_print().alias("print"))
        .groupBy("producer", "topic", "subs")
        .agg(F.sum("n").alias("n"), F.sum("print").alias("print"), F.max("zxid").alias("zxid"))
    )
    return (
        by_list.select("producer", "topic", F.explode("subs").alias("sub"), "n", "print", "zxid")
        .groupBy(name_key(*PAIR).alias("pair"))
        .agg(
            F.sum("n").alias("stored"),
            F.sum("print").alias("stored_print"),
            F.max("zxid").alias("last_zxid"),
            F.min(F.struct("topic", "sub")).alias("queue"),
        )
    )


def delivered(trail: DataFrame) -> DataFrame:
    """pair -> delivered, delivered_print, steps_back: what was handed over for the first time, and how orderly.

    Within a process `i` is the order of events; between owners of a partition or name, the epoch is.
    """
    in_order = Window.partitionBy("lane").orderBy("epoch", "i")
    return (
        happened(trail, "delivered")
        .select(
            name_key(*LANE).alias("lane"),
            name_key(*PAIR).alias("pair"),
            F.coalesce("epoch", F.lit(0)).alias("epoch"),
            "i",
            first_number().alias("first"),
            end_number().alias("past"),
            "n",
            range_print().alias("print"),
        )
        .withColumn("before", F.lag("past").over(in_order))
        .groupBy("lane", "pair")
        .agg(
            F.sum("n").alias("n"),
            F.sum("print").alias("print"),
            F.count_if(F.col("first") < F.col("before")).alias("steps_back"),
        )
        .groupBy("pair")
        .agg(
            F.sum("n").alias("delivered"),
            F.sum("print").alias("delivered_print"),
            F.sum("steps_back").alias("steps_back"),
        )
    )


def balance(trail: DataFrame) -> DataFrame:
    """pair -> both sides, and `suspect` where they differ or deliveries stepped back."""
    both = stored(trail).join(delivered(trail), "pair", "full_outer")
    sides = [F.coalesce(F.col(c), F.lit(0)) for c in ("stored_print", "delivered_print", "stored", "delivered")]
    differ = (sides[0] != sides[1]) | (sides[2] != sides[3])
    return both.withColumn("suspect", differ | (F.coalesce("steps_back", F.lit(0)) > 0))
