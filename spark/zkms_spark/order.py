"""Messages delivered after a younger one of the same producer; for groups, of the same key as well."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.entries import DELIVERED
from zkms_spark.partitions import keyed_messages


def steps_back(trail: DataFrame, entries: DataFrame, repeats: DataFrame) -> DataFrame:
    """Deliveries out of order: pair, first, past, run, i, t, node and `younger`, the number that had come before.

    A repeat is a duplicate, and not out of order besides.
    """
    line = ["pair", "run", "i"]
    once = entries.where(F.col("side") == DELIVERED).join(repeats.select(*line), line, "left_anti")
    return _per_producer(once).unionByName(_per_key(trail, once))


def _per_producer(deliveries: DataFrame) -> DataFrame:
    earlier = Window.partitionBy("lane").orderBy("epoch", "i", "first").rowsBetween(Window.unboundedPreceding, -1)
    return (
        deliveries.where("kind != 'group'")
        .withColumn("reached", F.max("past").over(earlier))
        .where("first < reached")
        .select(*_columns(deliveries), F.least("past", "reached").alias("end"), (F.col("reached") - 1).alias("younger"))
        .drop("past")
        .withColumnRenamed("end", "past")
    )


def _per_key(trail: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Only lanes that stepped back are taken apart into messages, to look up their keys where they were published."""
    earlier = Window.partitionBy("lane").orderBy("epoch", "i", "first")
    grouped = deliveries.where("kind = 'group'")
    broken = grouped.withColumn("before", F.lag("past").over(earlier)).where("first < before").select("lane").distinct()
    messages = grouped.join(F.broadcast(broken), "lane", "left_semi").select(
        *_columns(deliveries), F.explode(F.sequence("first", F.col("past") - 1)).alias("number")
    )
    messages = messages.localCheckpoint()
    same_key = Window.partitionBy("lane", "key").orderBy("epoch", "i", "number")
    reached = F.max("number").over(same_key.rowsBetween(Window.unboundedPreceding, -1))
    return (
        messages.join(keyed_messages(trail, messages), ["producer", "topic", "number"])
        .withColumn("younger", reached)
        .where("number < younger")
        .withColumn("first", F.col("number"))
        .withColumn("past", F.col("number") + 1)
        .drop("number", "key")
    )


def _columns(deliveries: DataFrame) -> list[str]:
    return [name for name in deliveries.columns if name != "side"]
