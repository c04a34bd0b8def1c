"""Messages delivered after a younger one of the same producer and priority; for groups, of the same key as well.

A delayed message has its place when it is due, not when it was published: it is never late.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit.ledger import PAIR
from zkms_spark.audit.numbers import by_range, end_number, first_number, lane_key, maker_key, name_key
from zkms_spark.audit.partitions import keyed_messages
from zkms_spark.schema import happened

_CARRIED = ("t", "i", "run", "node", "kind", "epoch")


def unruly(handed_over: DataFrame) -> DataFrame:
    """lane -> messages: the lanes in which a smaller number followed a greater one, and how much went through them."""
    lanes = handed_over.groupBy("lane").agg(
        F.sum("delivered").alias("messages"), F.sum("steps_back").alias("steps_back")
    )
    return lanes.where("steps_back > 0").drop("steps_back")


def steps_back(trail: DataFrame, lanes: DataFrame, repeats: DataFrame) -> DataFrame:
    """Deliveries out of order: pair, first, past, run, i, t, node and `younger`, the number that had come before.

    `lanes` are those to look into. A repeat is a duplicate, and not out of order besides.
    """
    deliveries = (
        by_range(happened(trail, "delivered"))
        .withColumn("pair", name_key(*PAIR))
        .withColumn("lane", lane_key())
        .join(F.broadcast(lanes.select("lane")), "lane", "left_semi")
        .select("lane", "pair", *PAIR, *_CARRIED, "first", "past")
        .localCheckpoint()
    )
    found = _per_producer(deliveries).unionByName(_per_key(trail, deliveries)).localCheckpoint()
    # Afterwards, as there are few: that a message has come before does not make others late.
    once = found.join(repeats.select("pair", "run", "i"), ["pair", "run", "i"], "left_anti")
    waited = F.expr("producer = its_producer and topic = its_topic and first >= waited_from and first < waited_to")
    return once.join(_delayed(trail, once), waited, "left_anti")


def _delayed(trail: DataFrame, late: DataFrame) -> DataFrame:
    """What was delayed of the producers and topics of these: few, so that the rest need not be brought together."""
    makers = F.broadcast(late.select("producer", "topic").distinct())
    rows = happened(trail, "delayed").join(makers, ["producer", "topic"], "left_semi")
    return rows.select(
        F.col("producer").alias("its_producer"),
        F.col("topic").alias("its_topic"),
        first_number().alias("waited_from"),
        end_number().alias("waited_to"),
    )


def _per_producer(deliveries: DataFrame) -> DataFrame:
    earlier = Window.partitionBy("lane").orderBy("epoch", "i", "first").rowsBetween(Window.unboundedPreceding, -1)
    return (
        deliveries.where("kind != 'group'")
        .withColumn("reached", F.max("past").over(earlier))
        .where("first < reached")
        .withColumns({"past": F.least("past", "reached"), "younger": F.col("reached") - 1})
        .drop("reached")
    )


def _per_key(trail: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Message by message, as keys stand with the publish."""
    grouped = deliveries.where("kind = 'group'")
    maker = maker_key().alias("maker")
    messages = grouped.select("*", maker, F.explode(F.sequence("first", F.col("past") - 1)).alias("number"))
    keys = keyed_messages(trail, grouped).select(maker, "number", "key")
    same_key = Window.partitionBy("lane", "key").orderBy("epoch", "i", "number")
    reached = F.max("number").over(same_key.rowsBetween(Window.unboundedPreceding, -1))
    return (
        messages.join(keys, ["maker", "number"])
        .withColumn("younger", reached)
        .where("number < younger")
        .withColumns({"first": F.col("number"), "past": F.col("number") + 1})
        .select(*deliveries.columns, "younger")
    )
