"""Whether a group has gone past a message that it never delivered.

Partitions of a group do not wait for each other, so a younger delivery proves nothing by itself. It does where it is
of the same key, which is in order; or where every partition has delivered something younger of the same producer.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit.ledger import PAIR
from zkms_spark.audit.numbers import name_key, pieces
from zkms_spark.schema import happened, home


def keyed_messages(trail: DataFrame, makers: DataFrame) -> DataFrame:
    """producer, topic, number, key: every message that has a key, of the producers and topics in `makers`."""
    some = F.broadcast(makers.select("producer", "topic").distinct())
    rows = (
        happened(trail, "published", "delayed").where("keys is not null").join(some, ["producer", "topic"], "left_semi")
    )
    zipped = F.arrays_zip(_numbers().alias("number"), F.col("keys").alias("key"))
    return rows.select("producer", "topic", F.inline(zipped)).where("key != 0")


def with_passed(
    missing: DataFrame, trail: DataFrame, notes: DataFrame, handed_over: DataFrame, kinds: DataFrame
) -> DataFrame:
    """The missing stretches, those of groups message by message, with `passed_in_group`."""
    of_groups = F.broadcast(kinds.where("kind = 'group'").select("home", "sub"))
    queue = ["home", "sub"]
    others = missing.join(of_groups, queue, "left_anti").withColumn("passed_in_group", F.lit(None).cast("boolean"))
    single = (
        missing.join(of_groups, queue, "left_semi")
        .withColumn("first", F.explode(F.sequence("first", F.col("past") - 1)))
        .withColumn("past", F.col("first") + 1)
        .localCheckpoint()
    )
    if single.isEmpty():
        return others
    keyed = keyed_messages(trail, single)
    judged = (
        single.join(_all_partitions(single, notes, handed_over), "pair", "left")
        .join(keyed.withColumnRenamed("number", "first"), ["producer", "topic", "first"], "left")
        .localCheckpoint()
    )
    judged = judged.join(_same_key(judged, keyed, trail), ["pair", "key"], "left")
    reached = F.greatest("all_reached", "key_reached")  # of those that are known
    passed = F.coalesce(F.col("first") < reached, F.lit(False))
    return others.unionByName(judged.withColumn("passed_in_group", passed).select(*others.columns))


def _all_partitions(single: DataFrame, notes: DataFrame, handed_over: DataFrame) -> DataFrame:
    """pair -> the number that every partition of the group has reached; none where a partition had nothing."""
    pairs = F.broadcast(single.select("pair", "home", "sub").distinct())
    reached = (
        handed_over.where("partition is not null")
        .join(pairs, "pair")
        .groupBy("pair", "home", "sub", "partition")
        .agg(F.max("delivered_reach").alias("past"))
        .localCheckpoint()
    )
    known = (
        happened(notes, "subscribed")
        .where("partition is not null")
        .select(home(), "sub", "partition")
        .unionByName(reached.select("home", "sub", "partition"))
        .groupBy("home", "sub")
        .agg(F.count_distinct("partition").alias("partitions"))
    )
    least = reached.groupBy("pair", "home", "sub").agg(
        F.min("past").alias("all_reached"), F.count("partition").alias("heard")
    )
    return least.join(F.broadcast(known), ["home", "sub"]).where("heard = partitions").select("pair", "all_reached")


def _same_key(judged: DataFrame, keyed: DataFrame, trail: DataFrame) -> DataFrame:
    """pair, key -> the greatest number delivered, for the keys of missing messages."""
    keys = F.broadcast(judged.where("key is not null").select("producer", "topic", "key").distinct())
    pairs = F.broadcast(judged.where("key is not null").select("pair").distinct())
    deliveries = happened(trail, "delivered").where("kind = 'group'").select(
        name_key(*PAIR).alias("pair"), "producer", "topic", pieces().alias("pieces")
    ).join(pairs, "pair", "left_semi").select("pair", "producer", "topic", F.inline("pieces"))  # fmt: skip
    numbers = deliveries.select(
        "pair", "producer", "topic", F.explode(F.sequence("first", F.col("past") - 1)).alias("number")
    )
    same = keyed.join(keys, ["producer", "topic", "key"], "left_semi")
    found = numbers.join(same, ["producer", "topic", "number"])
    return found.groupBy("pair", "key").agg(F.max("number").alias("key_reached"))


def _numbers() -> Column:
    """The number of every message of a row, in the order of its keys."""
    listed = F.transform("places", lambda place: F.col("seq") + place)
    whole = F.sequence(F.col("seq"), F.col("seq") + F.col("n") - 1)
    return F.when(F.col("places").isNull(), whole).otherwise(listed)
