"""Lag: what waited in each subscription's queue at the end of each step of time.

A subscription to a pattern has one queue for all of its topics, and what is purged of it is told of the queue: it is
one row here, under the pattern.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.schema import happened, home
from zkms_spark.traffic.traffic import MINUTE, step_of


def lag(trail: DataFrame, cube: DataFrame, step: float = MINUTE, notes: DataFrame | None = None) -> DataFrame:
    """topic, sub, step -> waiting: stored for it so far, less what was delivered or removed; or pattern, sub, step.

    `notes` are those of the trail, if they have been gathered.
    """
    stored = (
        happened(trail, "published", "due")
        .where(F.size("subs") > 0)
        .groupBy("topic", "subs", step_of("t", step).alias("step"))
        .agg(F.sum("n").alias("change"))
        .select("topic", F.explode("subs").alias("sub"), "step", "change")
    )
    taken = cube.where("event in ('delivered', 'expired') and sub is not null").select(
        "topic", "sub", "step", (-F.col("messages")).alias("change")
    )
    removed = happened(trail if notes is None else notes, "purged").select(
        "topic", "sub", step_of("t", step).alias("step"), (-F.col("n")).alias("change")
    )
    rows = stored.unionByName(taken).unionByName(removed)
    changes = rows.withColumn("topic", home()).groupBy("topic", "sub", "step")
    so_far = Window.partitionBy("topic", "sub").orderBy("step")
    summed = changes.agg(F.sum("change").alias("change")).withColumn("sum", F.sum("change").over(so_far))
    return summed.select("topic", "sub", "step", F.greatest("sum", F.lit(0)).alias("waiting"))


def worst(lag: DataFrame) -> DataFrame:
    """topic, sub -> most, the most that ever waited, when that was, and what waited at the end."""
    return lag.groupBy("topic", "sub").agg(
        F.max("waiting").alias("most"),
        F.max_by("step", "waiting").alias("most_at"),
        F.max_by("waiting", "step").alias("at_end"),
    )
