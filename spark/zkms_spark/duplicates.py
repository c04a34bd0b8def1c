"""Messages delivered twice by events that do not call themselves redelivered."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.entries import DELIVERED, overlapping, segments


def repeats(entries: DataFrame) -> DataFrame:
    """Every delivery but the first of a stretch, with `before`: where and when it was delivered first."""
    deliveries = entries.where(F.col("side") == DELIVERED)
    twice = segments(deliveries, atomic=True).where("delivered > 1")
    stretches = twice.select("pair", F.col("first").alias("a"), F.col("past").alias("b"))
    in_order = Window.partitionBy("pair", "a").orderBy("epoch", "i", "run")
    return (
        overlapping(deliveries, stretches)
        .withColumn("nth", F.row_number().over(in_order))
        .withColumn("before", F.first(F.struct("node", "t")).over(in_order))
        .where("nth > 1")
        .withColumn("first", F.greatest("first", "a"))
        .withColumn("past", F.least("past", "b"))
        .drop("a", "b", "nth")
    )
