"""Hot keys, and storms: the same key published again and again within seconds."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.schema import happened

WITHIN = 10.0
"""Seconds."""
STORM = 100
"""So many messages of one key within that time."""


def keys(trail: DataFrame) -> DataFrame:
    """topic, key -> messages, at most so many within ten seconds, and when; the key is a hash, as in the trail."""
    exploded = (
        happened(trail, "published", "delayed")
        .where("keys is not null")
        .select("topic", F.floor(F.col("t") / WITHIN).alias("moment"), F.explode("keys").alias("key"))
        .where("key != 0")
    )
    bursts = exploded.groupBy("topic", "key", "moment").agg(F.count("*").alias("messages"))
    return bursts.groupBy("topic", "key").agg(
        F.sum("messages").alias("messages"),
        F.max("messages").alias("burst"),
        (F.max_by("moment", "messages") * WITHIN).alias("burst_at"),
    )


def storms(keys: DataFrame) -> DataFrame:
    """Those that came again and again within seconds."""
    return keys.where(F.col("burst") >= STORM)
