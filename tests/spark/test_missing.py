"""Messages that were stored and never delivered, and how far a purge accounts for them."""

from __future__ import annotations

from typing import Any

import pytest
from zkms_spark.audit.missing import _split, excuses, fates
from zkms_spark.schema import make_trail

SCHEMA = (
    "home string, sub string, pair bigint, first bigint, past bigint, stored struct<t: double>, "
    "excuse struct<what: string>, purged bigint"
)


@pytest.mark.parametrize(
    ("stretches", "purged", "expected"),
    [
        ([(0, 206)], 200, [(0, 6, False), (6, 206, True)]),
        ([(0, 200)], 200, [(0, 200, True)]),
        ([(0, 10)], 0, [(0, 10, False)]),
        ([(0, 10), (20, 25)], 8, [(0, 7, False), (7, 10, True), (20, 25, True)]),
        ([(0, 10), (20, 25)], 4, [(0, 10, False), (20, 21, False), (21, 25, True)]),
    ],
    ids=["in part", "wholly", "not at all", "the younger one first", "the younger one in part"],
)
def test_a_purge_accounts_for_as_many_as_it_removed_and_these_are_the_youngest(
    spark: Any, stretches: list[tuple[int, int]], purged: int, expected: list[tuple[int, int, bool]]
) -> None:
    """Of the others nobody can tell, and nobody guesses."""
    rows = [("users", "node-b", 1, first, past, (float(first),), ("purged",), purged) for first, past in stretches]
    split = _split(spark.createDataFrame(rows, SCHEMA)).select("first", "past", "covered").collect()
    assert sorted((row.first, row.past, row.covered) for row in split) == expected


def test_what_no_purge_speaks_of_stays_whole(spark: Any) -> None:
    """A gap event covers all that it is about."""
    rows = [("users", "node-b", 1, 0, 10, (1.0,), ("gap",), None), ("users", "node-b", 1, 20, 30, (2.0,), None, None)]
    split = _split(spark.createDataFrame(rows, SCHEMA)).select("first", "past", "covered").collect()
    assert sorted((row.first, row.past, row.covered) for row in split) == [(0, 10, True), (20, 30, True)]


EVENT = "struct<t: double, i: bigint, run: string, zxid: bigint>"
GONE = (
    f"home string, sub string, pair bigint, priority int, first bigint, past bigint, stored {EVENT}, before {EVENT}, "
    f"after {EVENT}, passed_in_group boolean"
)
READS = "home string, sub string, reads array<struct<priority: int, zxid: bigint>>"


def fate(spark: Any, *, kind: str, reads: list[tuple[int, int]], priority: int | None = None, after: Any = None) -> str:
    """Of a message stored at zxid 10, in a queue that was given up at zxid 20 and taken again at zxid 30."""
    told = [("unsubscribed", 20, 20.0, 20), ("subscribed", 30, 30.0, 30)]
    notes = make_trail(
        spark,
        [
            {"event": event, "topic": "users", "sub": "audit", "kind": kind, "run": "r", "i": i, "t": t, "zxid": zxid}
            for event, i, t, zxid in told
        ],
    )
    stored = (10.0, 1, "w", 10)
    row = ("users", "audit", 1, priority, 1, 2, stored, None, after, kind == "group")
    kinds = spark.createDataFrame([("users", "audit", kind)], "home string, sub string, kind string")
    read = spark.createDataFrame([("users", "audit", reads)], READS)
    (judged,) = fates(spark.createDataFrame([row], GONE), excuses(notes), read, kinds).collect()
    return str(judged.fate)


def test_giving_a_name_up_accounts_for_what_waited_and_not_for_what_had_been_left_out(spark: Any) -> None:
    """Though in both cases younger ones have come since; in a group it is not known what had been left out."""
    later = (40.0, 40, "r", None)
    assert fate(spark, kind="durable", reads=[(0, 40)], after=later) == "accounted"
    assert fate(spark, kind="durable", reads=[(0, 15), (0, 40)]) == "violation"
    assert fate(spark, kind="durable", reads=[(0, 40)], after=(15.0, 15, "r", None)) == "violation"
    assert fate(spark, kind="group", reads=[(0, 15), (0, 40)]) == "accounted"


def test_a_message_is_passed_by_those_that_come_after_it(spark: Any) -> None:
    """Urgent ones come before it: only what is as urgent as itself, or less, shows that it was left out."""
    assert fate(spark, kind="durable", reads=[(5, 15), (0, 40)]) == "accounted"
    assert fate(spark, kind="durable", reads=[(5, 15), (0, 40)], priority=5) == "violation"
    assert fate(spark, kind="durable", reads=[(0, 15)], priority=5) == "violation"


def test_missing_lines_make_a_group_s_message_undecided_whatever_its_other_partitions_delivered(spark: Any) -> None:
    """Those say nothing of when it was its turn; but lines that are missing much later cannot be the ones."""
    kinds = spark.createDataFrame([("users", "workers", "group")], "home string, sub string, kind string")
    reads = spark.createDataFrame([("users", "workers", [(0, 40)])], READS)
    around = ((19.0, 1, "r", None), (5.0, 2, "r", None))  # delivered much later, and much earlier
    gone = spark.createDataFrame([("users", "workers", 1, None, 1, 2, (10.0, 1, "w", 10), *around, True)], GONE)
    hole = spark.createDataFrame([], excuses(make_trail(spark, [])).schema)

    def judged(since: float) -> str:
        row = ("users", "workers", "hole", "r", None, since, since + 0.1, 3, "3 lines missing", None, False)
        (found,) = fates(gone, spark.createDataFrame([row], hole.schema), reads, kinds).collect()
        return str(found.fate)

    assert judged(11.0) == "undecided"
    assert judged(60.0) == "violation"
