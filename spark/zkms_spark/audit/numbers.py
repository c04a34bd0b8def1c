"""Ranges of sequence numbers as numbers: what lets millions of them be compared by adding up.

A range [a, b) is h(b) - h(a) of a hash h. Adding these up over any cover of the same messages, in whatever pieces and
order, gives the same sum; a message too few, too many or twice changes it, but for one chance in 2**44. So two sides
of a ledger are compared without listing, sorting or joining a single message.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

_KEPT_BITS = 44
"""Of a hash: leaves room for the sum of some 2**38 ranges in 64 bits, also where overflow is an error."""


def name_key(*columns: str) -> Column:
    """One integer for names: shorter to shuffle, faster to compare."""
    return F.xxhash64(*columns)


def maker_key() -> Column:
    """One integer for what a message is stored under, before it is known for whom: its producer and topic."""
    return name_key("producer", "topic")


def lane_key() -> Column:
    """One integer for a lane, of its `pair` and `partition`: the names need not be looked at again."""
    return F.xxhash64("pair", "partition")


def print_of(first: Column, end: Column) -> Column:
    """The fingerprint of the messages from `first` up to, not including, `end`."""
    return _hash(end) - _hash(first)


def by_range(rows: DataFrame) -> DataFrame:
    """The rows with the `first` and `past` of their messages; a row with places becomes one for each of them.

    Nothing here is a function of arrays that takes a function: Spark does not compile those, nor what is around them.
    """
    place = F.col("place")
    spread = rows.withColumn("place", F.explode_outer("places"))
    first, past = F.coalesce(place, F.lit(0)), F.coalesce(place + 1, F.col("n"))
    return spread.withColumns({"first": F.col("seq") + first, "past": F.col("seq") + past})


def first_number() -> Column:
    """The first message of a row."""
    return F.col("seq") + F.coalesce(F.element_at("places", 1), F.lit(0))


def end_number() -> Column:
    """Past the last message of a row."""
    return F.col("seq") + F.coalesce(F.element_at("places", -1) + 1, F.col("n"))


def pieces() -> Column:
    """A row's messages as an array of (first, past): one range, or one for each place."""
    whole = F.array(F.struct(F.col("seq").alias("first"), (F.col("seq") + F.col("n")).alias("past")))
    listed = F.transform(
        "places", lambda p: F.struct((F.col("seq") + p).alias("first"), (F.col("seq") + p + 1).alias("past"))
    )
    return F.when(F.col("places").isNull(), whole).otherwise(listed)


def _hash(number: Column) -> Column:
    return F.shiftrightunsigned(F.xxhash64(number), 64 - _KEPT_BITS)
