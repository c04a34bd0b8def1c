"""Acks by a process that was not the owner any more, by ZooKeeper's own order of events."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit.numbers import end_number, first_number
from zkms_spark.schema import happened, home

LANE = ("home", "sub", "part")


def takeovers(notes: DataFrame) -> DataFrame:
    """home, sub, part, by: who took over a partition or name, with which epoch, and at which zxid."""
    return (
        happened(notes, "subscribed")
        .where("epoch is not null and zxid is not null")
        .select(home(), "sub", _part(), F.struct("zxid", "epoch", "node").alias("by"))
    )


def usurped(trail: DataFrame, notes: DataFrame) -> DataFrame:
    """Acks with an epoch that was over, with the first takeover after that epoch."""
    known = happened(trail, "acked").where("epoch is not null and zxid is not null")
    acks = known.withColumns({"home": home(), "part": _part()})
    return (
        acks.select(
            *("producer", "topic", *LANE, "run", "i", "node", "t", "epoch", "zxid"),
            first_number().alias("first"),
            end_number().alias("past"),
        )
        .join(F.broadcast(_over(acks, takeovers(notes))), [*LANE, "epoch"])
        .where("by.zxid < zxid")
    )


def _over(acks: DataFrame, takeovers: DataFrame) -> DataFrame:
    """home, sub, part, epoch, by: epochs that were acked with after somebody had taken over, and who had.

    Owners change for as long as a trail is: so each ack is not held against every one of them, but the last ack of an
    epoch against the first owner after it.
    """
    last = acks.groupBy(*LANE, "epoch").agg(F.max("zxid").alias("last_zxid"))
    nobody = F.lit(None).cast(takeovers.schema["by"].dataType).alias("by")
    unknown = F.lit(None).cast("bigint").alias("last_zxid")
    both = last.select(*LANE, "epoch", "last_zxid", nobody).unionByName(
        takeovers.select(*LANE, "by.epoch", unknown, "by")
    )
    later = Window.partitionBy(*LANE).orderBy(F.desc("epoch")).rangeBetween(Window.unboundedPreceding, -1)
    return both.withColumn("by", F.min("by").over(later)).where("by.zxid < last_zxid").drop("last_zxid")


def _part() -> Column:
    """A durable name has no partitions: it is as one with a single one."""
    return F.coalesce("partition", F.lit(-1)).alias("part")
