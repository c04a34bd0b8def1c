"""The balance: compares, for every producer, topic and subscription, what was stored with what was delivered.

Both sides are sums over ranges (`numbers`), so that a trail of any length is one pass: publishes are added up by their
list of subscriptions before that list is spread out, deliveries after one shuffle that also serves the check of their
order. Sums are kept by block of numbers. Where both sides agree and nothing was out of order, there is nothing to look
at; the rest are `suspect`.
"""

from __future__ import annotations

import functools
import operator

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit.numbers import by_range, lane_key, maker_key, name_key, print_of
from zkms_spark.schema import happened

PAIR = ("producer", "topic", "sub", "priority")
"""Messages with these in common are ordered; those of a higher priority overtake on purpose."""
LANE = (*PAIR, "partition")
"""Where deliveries are in order: to a subscription, or to one partition of a group."""
KINDS = ("live", "durable", "group")
"""As numbers they begin with 1."""
_SUMMED = ("block", "n", "print", "zxid", "past")
BLOCK_BITS = 9
"""A block is 512 numbers: all of it is examined if one of them is wrong."""


def block_of(number: Column) -> Column:
    """The block that a range belongs to: that of its first number."""
    return F.shiftright(number, BLOCK_BITS)


def stored(trail: DataFrame) -> DataFrame:
    """pair, block -> stored, stored_print, stored_reach, last_zxid, queue, maker: what was put into the queues."""
    by_list = (
        by_range(happened(trail, "published", "due").where(F.size("subs") > 0))
        .groupBy("producer", "topic", "subs", "priority", block_of(F.col("first")).alias("block"))
        .agg(
            _messages().alias("n"),
            _print().alias("print"),
            F.max("zxid").alias("zxid"),
            F.max("past").alias("past"),
        )
    )
    return (
        by_list.select("producer", "topic", "priority", F.explode("subs").alias("sub"), *_SUMMED)
        .withColumn("pair", name_key(*PAIR))
        .groupBy("pair", "block", *PAIR)
        .agg(
            F.sum("n").alias("stored"),
            F.sum("print").alias("stored_print"),
            F.max("past").alias("stored_reach"),
            F.max("zxid").alias("last_zxid"),
        )
        .withColumns({"queue": F.struct(*PAIR), "maker": maker_key()})
        .drop(*PAIR)
    )


def handed_over(trail: DataFrame) -> DataFrame:
    """pair, lane, run_key, block -> sums and ends of first deliveries, and whether they were in order.

    Within a process `i` is the order of events; between owners of a partition or name, the epoch is. `first_*` and
    `last_*` are the deliveries of the smallest and of the greatest number. Numbers stand for names, and no structs are
    kept, as both would have every group sorted instead of hashed.
    """
    in_order = Window.partitionBy("lane").orderBy("epoch", "i", "first")
    ends = {
        f"{which}_{what}": by(what, "first")
        for which, by in (("first", F.min_by), ("last", F.max_by))
        for what in ("i", "t")
    }
    return (
        by_range(happened(trail, "delivered"))
        .select(
            name_key(*PAIR).alias("pair"),
            name_key("run").alias("run_key"),
            F.coalesce("epoch", F.lit(0)).alias("epoch"),
            *("i", "t", "partition", "first", "past"),
            F.array_position(F.array(*map(F.lit, KINDS)), F.col("kind")).cast("int").alias("kind"),
        )
        .withColumn("lane", lane_key())
        .withColumn("before", F.lag("past").over(in_order))
        .groupBy("lane", "pair", "run_key", block_of(F.col("first")).alias("block"))
        .agg(
            _messages().alias("delivered"),
            _print().alias("delivered_print"),
            F.count_if(F.col("first") < F.col("before")).alias("steps_back"),
            F.max("past").alias("delivered_reach"),
            F.max("partition").alias("partition"),
            F.max("kind").alias("kind"),
            F.min("first").alias("first_first"),
            F.max("first").alias("last_first"),
            *(end.alias(name) for name, end in ends.items()),
        )
    )


def dropped(trail: DataFrame) -> DataFrame:
    """pair, block -> dropped, dropped_print: what expired, by the lines that say for which subscription."""
    return (
        by_range(happened(trail, "expired").where("sub is not null and seq is not null"))
        .groupBy(name_key(*PAIR).alias("pair"), block_of(F.col("first")).alias("block"))
        .agg(_messages().alias("dropped"), _print().alias("dropped_print"))
    )


def balance(stored: DataFrame, handed_over: DataFrame, dropped: DataFrame | None = None) -> DataFrame:
    """pair, block -> both sides, how far their ranges reach, and `suspect` where they differ.

    What a group did not deliver because it expired makes no difference. Of others it does: how far their queues have
    been read is told by what was delivered alone.
    """
    delivered = handed_over.groupBy("pair", "block").agg(
        *(F.sum(name).alias(name) for name in ("delivered", "delivered_print")),
        *(F.max(name).alias(name) for name in ("delivered_reach", "kind")),
    )
    both = stored.join(delivered, ["pair", "block"], "full_outer")
    if dropped is None:
        suspect = _differ("delivered")
    else:
        both = both.join(dropped, ["pair", "block"], "left")
        is_group = F.coalesce(F.col("kind"), F.lit(0)) == KINDS.index("group") + 1
        suspect = F.when(is_group, _differ("delivered", "dropped")).otherwise(_differ("delivered"))
    return both.withColumns({"reach": F.greatest("stored_reach", "delivered_reach"), "suspect": suspect})


def _differ(*others: str) -> Column:
    """Whether what was stored is not what these are together."""

    def sums(suffix: str) -> tuple[Column, Column]:
        return _known(f"stored{suffix}"), functools.reduce(operator.add, (_known(f"{o}{suffix}") for o in others))

    return functools.reduce(operator.or_, (ours != theirs for ours, theirs in (sums(""), sums("_print"))))


def _messages() -> Column:
    return F.sum(F.col("past") - F.col("first"))


def _print() -> Column:
    return F.sum(print_of(F.col("first"), F.col("past")))


def _known(column: str) -> Column:
    return F.coalesce(F.col(column), F.lit(0))
