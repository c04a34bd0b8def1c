"""Traffic: how much was published and delivered, how fast, and how often it took more than one attempt.

One pass adds everything up into a cube of topic, subscription, node, step of time and bucket of latency. A bucket is
4 % wide, so percentiles at any level come from the cube to within 2 %, and no delivery is looked at twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.schema import happened

MINUTE = 60.0
WIDTH = math.log(1.04)
SHORTEST = 1e-6
COUNTED = ("published", "delayed", "due", "delivered", "redelivered", "acked", "nacked", "expired", "dead")


def cube(trail: DataFrame, step: float = MINUTE) -> DataFrame:
    """event, topic, sub, node, kind, step, bucket -> messages, lines, bytes, copies, slowest.

    `copies` is what a publish was stored as: its messages times its subscriptions.
    """
    latency = F.when(F.col("event") == "delivered", _latency())
    return (
        happened(trail, *COUNTED)
        .withColumn("latency", latency)
        .groupBy(
            "event",
            "topic",
            "sub",
            "node",
            "kind",
            step_of("t", step).alias("step"),
            _bucket().alias("bucket"),
        )
        .agg(
            F.sum("n").alias("messages"),
            F.count("*").alias("lines"),
            F.sum("size").alias("bytes"),
            F.sum(F.when(F.col("event").isin("published", "due"), F.col("n") * F.size("subs"))).alias("copies"),
            F.max("latency").alias("slowest"),
        )
    )


def delays(trail: DataFrame, step: float = MINUTE) -> DataFrame:
    """topic, sub, step, bucket -> messages, slowest: as much of the cube as the latency of subscriptions takes."""
    return (
        happened(trail, "delivered")
        .withColumn("latency", _latency())
        .groupBy("topic", "sub", step_of("t", step).alias("step"), _bucket().alias("bucket"))
        .agg(F.sum("n").alias("messages"), F.max("latency").alias("slowest"))
    )


def _latency() -> Column:
    return F.greatest(F.col("t") - F.col("at"), F.lit(SHORTEST))


def _bucket() -> Column:
    return F.floor(F.log("latency") / WIDTH).cast("int")


def step_of(column: str, step: float) -> Column:
    """The step of time that a moment falls into, by its beginning."""
    return F.floor(F.col(column) / step).cast("double") * step


def latency(cube: DataFrame, by: Sequence[str], quantiles: Sequence[float] = (0.5, 0.9, 0.99)) -> DataFrame:
    """`by` -> messages, p50, p90, p99 and the slowest, in seconds."""
    # Brought together once: what follows is grouped by the same columns, or by more.
    buckets = cube.where("bucket is not null").repartition(*by)
    if set(cube.columns) - {"messages", "slowest"} != {*by, "bucket"}:  # else they are added up already
        buckets = buckets.groupBy(*by, "bucket").agg(
            F.sum("messages").alias("messages"), F.max("slowest").alias("slowest")
        )
    group = Window.partitionBy(*by)
    so_far = F.sum("messages").over(group.orderBy("bucket"))
    placed = buckets.withColumns({"so_far": so_far, "total": F.sum("messages").over(group)})
    return placed.groupBy(*by).agg(
        F.sum("messages").alias("messages"),
        *(_quantile(q).alias(f"p{q * 100:g}".replace(".", "_")) for q in quantiles),
        F.max("slowest").alias("slowest"),
    )


def _quantile(q: float) -> Column:
    """The middle of the first bucket that so many messages lie in or before."""
    bucket = F.min(F.when(F.col("so_far") >= F.ceil(F.col("total") * q), F.col("bucket")))
    return F.exp((bucket + 0.5) * WIDTH)


def totals(cube: DataFrame) -> DataFrame:
    """topic -> published, copies, bytes and delivered."""
    return cube.groupBy("topic").agg(
        _sum_of("published", "messages").alias("published"),
        _sum_of("published", "copies").alias("copies"),
        _sum_of("published", "bytes").alias("bytes"),
        _sum_of("delivered", "messages").alias("delivered"),
    )


def throughput(cube: DataFrame) -> DataFrame:
    """topic, step -> published, copies, delivered and bytes published."""
    return cube.groupBy("topic", "step").agg(
        _sum_of("published", "messages").alias("published"),
        F.sum("copies").alias("copies"),
        _sum_of("delivered", "messages").alias("delivered"),
        _sum_of("published", "bytes").alias("bytes"),
    )


def retries(cube: DataFrame) -> DataFrame:
    """topic, sub -> delivered, redelivered, nacked, expired and dead, where any of the latter happened."""
    events = ("delivered", "redelivered", "nacked", "expired", "dead")
    counted = cube.where("sub is not null").groupBy("topic", "sub").agg(
        *(_sum_of(event, "messages").alias(event) for event in events)
    )  # fmt: skip
    return counted.where(" + ".join(f"coalesce({event}, 0)" for event in events[1:]) + " > 0")


def _sum_of(event: str, what: str) -> Column:
    return F.coalesce(F.sum(F.when(F.col("event") == event, F.col(what))), F.lit(0))
