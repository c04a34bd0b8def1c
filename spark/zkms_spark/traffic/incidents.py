"""What happened to consumers: gaps, purges, processes that died, and how long each node was cut off."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.schema import happened


def incidents(notes: DataFrame) -> DataFrame:
    """Gaps and purges: event, topic, sub, node -> how often, messages, first and last time, the last reason."""
    return (
        happened(notes, "gap", "purged")
        .groupBy("event", "topic", "sub", "node")
        .agg(
            F.count("*").alias("times"),
            F.sum("n").alias("messages"),
            F.min("t").alias("first_at"),
            F.max("t").alias("last_at"),
            F.max_by("reason", "t").alias("reason"),
        )
    )


def cut_off(notes: DataFrame) -> DataFrame:
    """node -> seconds without a connection to ZooKeeper, how often, and sessions that expired."""
    states = Window.partitionBy("run").orderBy("i")
    spans = happened(notes, "session").select("node", "state", (F.lead("t").over(states) - F.col("t")).alias("seconds"))
    away = F.col("state").isin("suspended", "expired")
    return spans.groupBy("node").agg(
        F.coalesce(F.sum(F.when(away, F.col("seconds"))), F.lit(0.0)).alias("seconds"),
        F.count_if(F.col("state") == "suspended").alias("times"),
        F.count_if(F.col("state") == "expired").alias("expired"),
    )
