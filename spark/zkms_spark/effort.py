"""How much Spark prepares before it works: code that is compiled for a query pays off from millions of rows on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

FEW = 1_000_000
"""Rows: up to here Spark is quicker without compiling anything for them."""
_PLAIN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@contextmanager
def plainly(spark: SparkSession, rows: int) -> Iterator[None]:
    """Queries that are run within the block are interpreted if they are about few rows; others are compiled."""
    if rows > FEW:
        yield
        return
    before = {key: spark.conf.get(key) or "" for key in _PLAIN}
    for key, value in _PLAIN.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def together(frame: DataFrame) -> DataFrame:
    """The same rows in a few parts, two for each core: `frame` is a checkpoint of few rows from many files."""
    return frame.coalesce(2 * frame.sparkSession.sparkContext.defaultParallelism)
