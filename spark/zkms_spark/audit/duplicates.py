"""Messages delivered twice by events that are not "redelivered"."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit.entries import DELIVERED, overlapping, segments


def doubled(entries: DataFrame, stretches: DataFrame) -> DataFrame:
    """The entries of pairs in which something was delivered twice, by their `segments`: few of all that are suspect."""
    pairs = stretches.where(F.col(DELIVERED) > 1).select("pair").distinct()
    return entries.join(F.broadcast(pairs), "pair", "left_semi")


def repeats(entries: DataFrame) -> DataFrame:
    """Every delivery but the first of a stretch: pair, first, past, `again` and `before`, where and when each was."""
    deliveries = entries.where(F.col("side") == DELIVERED)
    twice = segments(deliveries, atomic=True).where("delivered > 1")
    stretches = twice.select("pair", F.col("first").alias("a"), F.col("past").alias("b"))
    in_order = Window.partitionBy("pair", "a").orderBy("epoch", "i", "run_key")
    delivery = F.struct("t", "i", "run_key")
    return (
        overlapping(deliveries, stretches)
        .withColumn("nth", F.row_number().over(in_order))
        .withColumns({"again": delivery, "before": F.first(delivery).over(in_order)})
        .where("nth > 1")
        .select(
            "pair",
            F.greatest("first", "a").alias("first"),
            F.least("past", "b").alias("past"),
            *("again", "before"),
        )
    )
