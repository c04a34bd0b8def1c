"""Messages that were stored and never delivered, and how far a purge accounts for them."""

from __future__ import annotations

from typing import Any

import pytest
from zkms_spark.missing import _split

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
