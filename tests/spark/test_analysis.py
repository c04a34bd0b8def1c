"""What Spark makes of a trail: every planted fault, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from zkms_spark import analysis, schema
from zkms_spark.audit.audit import audit
from zkms_spark.audit.survey import holes, survey
from zkms_spark.audit.verdict import GUARANTEES, UNDECIDED
from zkms_spark.errors import NoTrail
from zkms_spark.schema import make_trail, read_trail

from zkms.trail.event import COLUMNS, VIOLATIONS

from .browser import browse, check_page
from .conftest import Case

# The analysis is minutes of work for a machine that is busy with other tests.
pytestmark = pytest.mark.timeout(1200)


def test_the_columns_are_those_of_the_trail() -> None:
    """This package stands alone inside a cluster, so it spells them again."""
    assert schema.COLUMNS == COLUMNS
    assert set(GUARANTEES) == set(VIOLATIONS)


def test_all_planted_violations_are_found_and_none_is_invented(case: Case) -> None:
    """By kind, subscription, producer and number."""
    names = ("violation", "topic", "sub", "producer")
    planted = {(*(each[name] for name in names), each["seq"], each["n"]) for each in case.planted}
    found = {
        (*(row[name] for name in names), row["first"], row["messages"])
        for row in case.analysis.findings
        if row["verdict"] == "violation"
    }
    assert found == planted
    assert {row["violation"] for row in case.analysis.findings} == set(VIOLATIONS)
    assert all(row["evidence"] for row in case.analysis.findings)


def test_lost_lines_make_it_undecided_with_the_reason(case: Case) -> None:
    """The generator kills one node, and another loses lines: what these told nobody can judge, and that is said."""
    undecided = [row for row in case.analysis.findings if row["verdict"] == UNDECIDED]
    assert undecided
    assert all("missing" in row["evidence"] or "purged" in row["evidence"] for row in undecided)
    assert any(hole["killed"] for hole in case.analysis.holes)
    assert any(not hole["killed"] and hole["lines"] for hole in case.analysis.holes)


def test_the_figures_add_up(case: Case) -> None:
    """Topics, subscriptions and plots count the same messages."""
    a = case.analysis
    assert sum(row["published"] for row in a.topics) == a.messages
    assert sum(row["delivered"] for row in a.topics) == a.totals["delivered"]
    assert sum(row["delivered"] for row in a.throughput) == a.totals["delivered"]
    assert sum(row["messages"] for row in a.subscriptions if row["messages"]) == a.totals["delivered"]
    for row in a.subscriptions:
        if row["p50"] is not None:
            assert 0 < row["p50"] <= row["p99"] <= row["slowest"] * 1.05
    assert a.hot_keys
    assert a.nodes


def test_the_page_is_good_in_a_browser(case: Case, tmp_path: Any) -> None:
    """Drawn, offline, without errors; light, dark and on a phone; a topic cannot put anything into it."""
    page = copy.deepcopy(case.analysis)
    evil = "<img src=x onerror=\"document.title='owned'\"></script><b>"
    for rows in (page.topics, page.throughput, page.latency, page.findings, page.subscriptions):
        for row in rows:
            row["topic"] = evil + row["topic"]
    with browse(page, tmp_path) as browser:
        check_page(browser, evil, page)


def trail_of_one_miss(spark: Any) -> Any:
    """Two frames to one subscriber, whose first delivery is not there, nor line 2 of its process."""
    reader = {"run": "r", "node": "reader", "host": "h", "source": "reader-1-000001", "file": 1}
    writer = {"run": "w", "node": "writer", "host": "h", "source": "writer-1-000001", "file": 1}
    frame = {"topic": "users", "producer": "p", "n": 5, "size": 100}
    delivered = {**reader, **frame, "event": "delivered", "sub": "s", "kind": "live"}
    published = {**writer, **frame, "event": "published", "subs": ["s"]}
    return make_trail(
        spark,
        [
            {**reader, "event": "opened", "t": 0.0, "i": 0},
            {**writer, "event": "opened", "t": 0.0, "i": 0},
            {**reader, "event": "subscribed", "sub": "s", "topic": "users", "kind": "live", "t": 1.0, "i": 1},
            {**published, "seq": 0, "at": 2.0, "t": 2.0, "i": 1, "zxid": 1},
            {**published, "seq": 5, "at": 3.0, "t": 3.0, "i": 2, "zxid": 2},
            {**delivered, "seq": 5, "at": 3.0, "t": 3.1, "i": 3},
            {**reader, "event": "closed", "t": 4.0, "i": 0},
            {**writer, "event": "closed", "t": 4.0, "i": 0},
        ],
    ).cache()


def test_without_the_count_of_lines_a_lost_line_would_read_as_a_lost_message(spark: Any) -> None:
    """The same trail is undecided, and a violation when nobody looks at which lines are missing."""
    trail = trail_of_one_miss(spark)
    known = survey(trail)
    missing = holes(known)
    assert [(hole.node, hole.lines) for hole in missing] == [("reader", 1)]
    verdicts = [row.verdict for row in audit(trail, trail, known, missing, 0.1).findings.collect()]
    assert verdicts == ["undecided"]
    blind = audit(trail, trail, known, [], 0.1).findings.collect()
    assert [(row.violation, row.verdict, row["first"], row.messages) for row in blind] == [
        ("missed", "violation", 0, 5)
    ]


def test_an_empty_trail_and_a_missing_one_are_named(spark: Any, tmp_path: Any) -> None:
    """A sentence, not a stack of Java."""
    with pytest.raises(NoTrail, match="nowhere"):
        read_trail(spark, str(tmp_path / "nowhere"))
    with pytest.raises(NoTrail, match="no trail in"):
        read_trail(spark, str(tmp_path))
    with pytest.raises(NoTrail, match="is empty"):
        analysis.analyse_trail(make_trail(spark, []), "here")
