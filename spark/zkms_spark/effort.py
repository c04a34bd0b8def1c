"""Limits what Spark does beside its work: compiling code for a query pays off only for millions of rows.

And how much it reconsiders while it works: what a trail is cut into is known from its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from pyspark.sql import DataFrame, SparkSession

from zkms_spark.gateway import size_in_bytes

FEW = 1_000_000
"""Rows: up to here Spark is quicker without compiling anything for them."""
_PLAIN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_STEADY = {
    "spark.sql.adaptive.enabled": "false",
    # Each task costs something before it has read a row, and what it adds up is the less the more it has read.
    "spark.sql.files.maxPartitionBytes": str(64 << 20),
    "spark.sql.files.openCostInBytes": str(1 << 20),
}
PART_BYTES = 96 << 20
"""Of a trail's Parquet: what of it is shuffled is then some 50 MB for each task, and is sorted in memory."""
_UNKNOWN = 1 << 50
"""Bytes: what Spark takes the size of something for that it cannot tell is far more."""


def plainly(spark: SparkSession, rows: int) -> AbstractContextManager[None]:
    """Queries that are run within the block are interpreted if they are about few rows; others are compiled."""
    return nullcontext() if rows > FEW else _with(spark, _PLAIN)


def steadily(trail: DataFrame) -> AbstractContextManager[None]:
    """Queries that are run within the block are planned once, for as many parts as a trail of this size takes.

    Otherwise Spark plans each anew after each of its stages, and makes a job of each: for two hundred small stages that
    takes longer than it saves. It does so still for a trail that is not in files, whose size nobody knows.
    """
    spark = trail.sparkSession
    cores = spark.sparkContext.defaultParallelism
    size = size_in_bytes(trail)
    if size > _UNKNOWN:
        return nullcontext()
    rounds = max(1, math.ceil(size / PART_BYTES / cores))
    return _with(spark, _STEADY | {"spark.sql.shuffle.partitions": str(rounds * cores)})


@contextmanager
def _with(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key) or "" for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def together(frame: DataFrame) -> DataFrame:
    """The same rows in a few parts, two for each core: `frame` is a checkpoint of few rows from many files."""
    return frame.coalesce(2 * frame.sparkSession.sparkContext.defaultParallelism)
