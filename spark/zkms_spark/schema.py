"""A trail as Spark reads it: explicit columns, from Parquet under date=/hour=.

The columns are those of `zkms.trail.event`, spelled here once more so that this package stands alone inside a cluster;
a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.types import StructType

from zkms_spark.errors import NoTrail

COLUMNS: dict[str, str] = {
    "source": "string",
    "node": "string",
    "host": "string",
    "pid": "bigint",
    "run": "string",
    "started": "double",
    "file": "bigint",
    "i": "bigint",
    "event": "string",
    "t": "double",
    "m": "double",
    "topic": "string",
    "producer": "string",
    "seq": "bigint",
    "n": "bigint",
    "places": "array<bigint>",
    "ids": "array<string>",
    "keys": "array<bigint>",
    "sub": "string",
    "subs": "array<string>",
    "kind": "string",
    "partition": "int",
    "epoch": "bigint",
    "size": "bigint",
    "at": "double",
    "due": "double",
    "expires": "double",
    "attempt": "int",
    "priority": "int",
    "zxid": "bigint",
    "state": "string",
    "reason": "string",
    "of": "string",
    "lines": "bigint",
    "lost": "bigint",
    "removed": "bigint",
    "flush": "double",
}
NOTES = ("opened", "closed", "lost", "session", "subscribed", "unsubscribed", "gap", "purged")
"""Events that tell of processes and subscriptions, not of messages: a few for each, however much they did."""
_NOTED = (
    *("source", "node", "host", "run", "file", "i", "event", "t", "topic", "producer", "n", "sub", "kind"),
    *("partition", "epoch", "at", "zxid", "state", "reason", "of", "flush"),
)
"""What they say; other columns would be read of every message for nothing."""
_CALLED = r"^.* \((.+)\)$"
"""How a subscription to a pattern is called."""
TRAIL = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
"""As Spark's DDL."""


def read_trail(spark: SparkSession, path: str) -> DataFrame:
    """The exported trail below `path`, on any file system that Spark knows; `NoTrail` where there is none."""
    reader = spark.read.schema(TRAIL).option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
    try:
        trail = reader.parquet(path)
        files = trail.inputFiles()
    except AnalysisException as error:
        raise NoTrail(f"there is no trail in {path}: {_first_line(error)}") from error
    if not files:
        raise NoTrail(f"there is no trail in {path}: `zkms trail export --to DIR` makes one of what processes recorded")
    return trail


def make_trail(spark: SparkSession, events: list[dict[str, Any]]) -> DataFrame:
    """A trail of these events, for a try in a notebook; what an event does not say is null."""
    return spark.createDataFrame([tuple(event.get(name) for name in COLUMNS) for event in events], TRAIL)


def empty(spark: SparkSession, ddl: str) -> DataFrame:
    """No rows, of this schema: known to be none when a query is planned, so that joins with it are left out."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)  # noqa: S101 - Spark says so too, but not to a type checker
    nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields)
    return spark.range(0).where(F.lit(False)).select(*nothing)


def happened(trail: DataFrame, *events: str) -> DataFrame:
    """The rows of these events."""
    return trail.where(F.col("event").isin(*events))


def notes(trail: DataFrame) -> DataFrame:
    """The rows of `NOTES`: few, so who asks for several of them has them gathered once, and not once for each."""
    return happened(trail, *NOTES).select(*_NOTED)


def home() -> Column:
    """The topic whose queue a row is about, by its `topic` and `sub`: a subscription to a pattern is called by that.

    Its messages have topics of their own; what is told of its queue has the pattern.
    """
    pattern = F.regexp_extract("sub", _CALLED, 1)
    return F.when(F.endswith("sub", F.lit(")")) & (pattern != ""), pattern).otherwise(F.col("topic")).alias("home")


def home_of(topic: str, sub: str) -> str:
    """The same for one row that was collected."""
    pattern = re.fullmatch(_CALLED, sub)
    return topic if pattern is None else pattern[1]


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
