"""Who wrote a trail: processes that cannot be told apart by their names."""

from __future__ import annotations

from zkms_spark.analysis import Analysis
from zkms_spark.audit.survey import Run, Survey, namesakes
from zkms_spark.report.report import render
from zkms_spark.report.summary import doubts


def survey(*runs: Run) -> Survey:
    """Of these processes."""
    return Survey({run.run: run for run in runs})


def test_processes_of_one_name_at_one_time_are_found_and_a_restart_is_not() -> None:
    """Also where a third one was between them, and had ended."""
    first = Run("a", "ann", "h1", 1, began=0.0, ended=100.0)
    short = Run("b", "ann", "h2", 2, began=10.0, ended=20.0)
    third = Run("c", "ann", "h3", 3, began=50.0, ended=60.0)
    later = Run("d", "ann", "h1", 4, began=100.0, ended=200.0)
    other = Run("e", "bob", "h1", 5, began=0.0, ended=200.0)
    assert namesakes(survey(first, short, third, later, other)) == [(first, short), (first, third)]


def test_clocks_that_are_apart_make_no_namesakes() -> None:
    """The second began when the first had ended, by a clock that is behind; or by less than clocks are apart."""
    first = Run("a", "ann", "h1", 1, began=0.0, ended=100.0)
    second = Run("b", "ann", "h2", 2, began=90.0, ended=200.0)
    found = survey(first, second)
    assert namesakes(found) == [(first, second)]
    assert namesakes(found, margin=10.0) == []
    found.ahead = {"h2": -10.0}
    assert namesakes(found) == []


def test_what_is_doubtful_stands_on_the_page() -> None:
    """With whatever a file may be called."""
    pair = (Run("a", "ann", "h1", 1), Run("b", "ann", "h2", 2))
    analysis = Analysis("here", warnings=["<b>: 1 of 2 lines are no events"], namesakes=[pair])
    said = doubts(analysis)
    assert len(said) == 2
    assert "two processes were called 'ann' at the same time: 1 on h1 and 2 on h2" in said[1]
    page = render(analysis)
    assert "Part of the trail is doubtful: &lt;b&gt;: 1 of 2 lines are no events." in page
    assert "two processes were called" in page
