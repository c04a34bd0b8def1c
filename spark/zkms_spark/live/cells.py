"""Cells: a batch of the trail added up so that batches can be added to each other.

    step, event, topic, sub, bucket -> messages, lines, bytes, copies, slowest

The sums are those of the report (`traffic.cube`); besides, `stored` is what was stored for each subscription, and gaps,
purges and lost lines are counted. A cell of one batch plus the same cell of the next is that of both together.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.schema import happened
from zkms_spark.traffic import traffic

STORED = "stored"
NOTED = ("gap", "purged", "lost")
KEY = ("step", "event", "topic", "sub", "bucket")
VALUES = {"messages": "bigint", "lines": "bigint", "bytes": "bigint", "copies": "bigint", "slowest": "double"}


def cells(trail: DataFrame, step: float = traffic.MINUTE) -> DataFrame:
    """Add a batch up."""
    counted = traffic.cube(trail, step).groupBy(*KEY).agg(*(_added(name) for name in VALUES))
    return counted.unionByName(_stored(trail, step)).unionByName(_noted(trail, step))


def _added(name: str) -> Column:
    return F.max(name).alias(name) if name == "slowest" else F.sum(name).alias(name)


def _stored(trail: DataFrame, step: float) -> DataFrame:
    """What came into each subscription's queue: added up before it is taken apart, as in `lag`."""
    together = (
        happened(trail, "published", "due")
        .where(F.size("subs") > 0)
        .groupBy("topic", "subs", traffic.step_of("t", step).alias("step"))
        .agg(F.sum("n").alias("messages"), F.count("*").alias("lines"))
    )
    apart = together.select("topic", "step", "messages", "lines", F.explode("subs").alias("sub"))
    each = apart.groupBy("topic", "step", "sub").agg(_added("messages"), _added("lines"))
    return _shaped(each.withColumn("event", F.lit(STORED)))


def _noted(trail: DataFrame, step: float) -> DataFrame:
    noted = (
        happened(trail, *NOTED)
        .groupBy("event", "topic", "sub", traffic.step_of("t", step).alias("step"))
        .agg(F.coalesce(F.sum("n"), F.lit(0)).alias("messages"), F.count("*").alias("lines"))
    )
    return _shaped(noted)


def _shaped(rows: DataFrame) -> DataFrame:
    """With the columns that they do not have."""
    absent = {name: kind for name, kind in {"bucket": "int", **VALUES}.items() if name not in rows.columns}
    full = rows.withColumns({name: F.lit(None).cast(kind) for name, kind in absent.items()})
    return full.select(*KEY, *VALUES)
