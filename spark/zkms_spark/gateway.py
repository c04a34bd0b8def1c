"""Access to Spark's JVM where PySpark has no public call: the only module that uses PySpark's private attributes.

A version of Spark that changes one of them needs a change here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def size_in_bytes(frame: DataFrame) -> int:
    """How much Spark estimates that a DataFrame has to read."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def executors(spark: SparkSession) -> int:
    """How many executors have come; Spark counts the driver as one, and we do not."""
    return int(_context(spark).sc().getExecutorMemoryStatus().size()) - 1


def path_exists(spark: SparkSession, path: str) -> bool:
    """Whether there is something at a path of any file system that Spark knows."""
    jvm: Any = spark.sparkContext._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    return bool(place.getFileSystem(_context(spark).hadoopConfiguration()).exists(place))


def stop(spark: SparkSession) -> None:
    """End a session and its JVM, which outlives it otherwise, and holds files in the directory that goes."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    spark.stop()
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        process.stdin.close()  # it ends when its input is closed
        process.wait(timeout=60)
    SparkContext._gateway = None
    SparkContext._jvm = None


def _context(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc
