"""Acks by a process that was not the owner any more, by ZooKeeper's own order of events."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.numbers import end_number, first_number
from zkms_spark.schema import happened


def takeovers(trail: DataFrame) -> DataFrame:
    """topic, sub, part, by: who took over a partition or name, with which epoch, and at which zxid."""
    return (
        happened(trail, "subscribed")
        .where("epoch is not null and zxid is not null")
        .select("topic", "sub", _part(), F.struct("zxid", "epoch", "node").alias("by"))
    )


def usurped(trail: DataFrame) -> DataFrame:
    """Acks with an epoch that was over, with the first takeover after that epoch."""
    acks = happened(trail, "acked").where("epoch is not null and zxid is not null")
    lane = ["topic", "sub", "part"]
    return (
        acks.select(
            *("producer", "topic", "sub", "run", "i", "node", "t", "epoch", "zxid", _part()),
            first_number().alias("first"),
            end_number().alias("past"),
        )
        .join(F.broadcast(takeovers(trail)), lane)
        .where("by.epoch > epoch and by.zxid < zxid")
        .groupBy("producer", *lane, "run", "i", "node", "t", "epoch", "zxid", "first", "past")
        .agg(F.min("by").alias("by"))
    )


def _part() -> Column:
    """A durable name has no partitions: it is as one with a single one."""
    return F.coalesce("partition", F.lit(-1)).alias("part")
