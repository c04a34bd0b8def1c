"""Messages delivered before they were due, or after they had expired.

Which clock decides is the leader's or the reader's, and neither is the one that set the deadline: so times are taken
as they were recorded, and nothing is called untimely that the distance between clocks could explain. Only the leader
has to keep to a due time by its own clock.

Deadlines stand with the publish, deliveries elsewhere, both as ranges of one producer's numbers: sorted together, the
last deadline at or before a delivery is the only one that can be its own.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit.numbers import end_number, first_number, name_key
from zkms_spark.schema import happened


def deadlines(trail: DataFrame) -> DataFrame:
    """Every range with a deadline: producer, topic, first, past, due, expires."""
    rows = happened(trail, "published", "delayed").where("expires is not null or due is not null")
    return rows.select("producer", "topic", first_number().alias("first"), end_number().alias("past"), "due", "expires")


def untimely(trail: DataFrame, margin: float) -> DataFrame:
    """Deliveries at the wrong time by more than `margin` seconds, with the `violation` and the `deadline`.

    `trail` is as recorded, its times not corrected.
    """
    bounded = deadlines(trail)
    makers = F.broadcast(bounded.select(name_key("producer", "topic").alias("maker")).distinct())
    deliveries = (
        happened(trail, "delivered", "redelivered")
        .withColumn("maker", name_key("producer", "topic"))
        .join(makers, "maker", "left_semi")
        .select(
            *("maker", "producer", "topic", "sub", "node", "host", "t", "event"),
            first_number().alias("first"),
            end_number().alias("past"),
            F.lit(None).cast("struct<past:bigint,due:double,expires:double>").alias("deadline"),
        )
    )
    rules = bounded.select(
        name_key("producer", "topic").alias("maker"),
        *("producer", "topic"),
        *(F.lit(None).cast("string").alias(name) for name in ("sub", "node", "host")),
        F.lit(None).cast("double").alias("t"),
        F.lit(None).cast("string").alias("event"),
        *("first", "past"),
        F.struct("past", "due", "expires").alias("deadline"),
    )
    line = Window.partitionBy("maker").orderBy("first", F.col("event").isNotNull())
    matched = (
        deliveries.unionByName(rules)
        .withColumn("rule", F.last("deadline", True).over(line))
        .where("event is not null and first < rule.past")
    )
    early = matched.where(F.col("t") < F.col("rule.due") - margin).withColumn("deadline", F.col("rule.due"))
    late = matched.where(F.col("t") > F.col("rule.expires") + margin).withColumn("deadline", F.col("rule.expires"))
    kept = ["producer", "topic", "sub", "node", "t", "first", "past", "deadline"]
    message = ["producer", "topic", "first"]
    moved = _moved_early(trail).join(early.select(*message), message, "left_anti")  # its deliveries say more
    return (
        early.select(F.lit("early").alias("violation"), *kept)
        .unionByName(late.select(F.lit("after_expiry").alias("violation"), *kept))
        .unionByName(moved)
    )


def _moved_early(trail: DataFrame) -> DataFrame:
    """By the leader's own clock a message must not leave its bucket before it is due."""
    return (
        happened(trail, "due")
        .where("t < due")
        .select(
            F.lit("early").alias("violation"),
            *("producer", "topic"),
            F.lit(None).cast("string").alias("sub"),
            *("node", "t"),
            first_number().alias("first"),
            end_number().alias("past"),
            F.col("due").alias("deadline"),
        )
    )
