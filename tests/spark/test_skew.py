"""How far clocks are apart, from the shortest ways between hosts."""

from __future__ import annotations

import pytest
from zkms_spark.audit.skew import estimate, spread


def test_clocks_are_told_apart_by_messages_in_both_directions() -> None:
    """b is two seconds ahead of a; the fastest message took 5 ms each way."""
    clocks = estimate(["a", "b"], {("a", "b"): 2.005, ("b", "a"): -1.995})
    assert clocks["b"].offset - clocks["a"].offset == pytest.approx(2.0)
    assert clocks["b"].error == pytest.approx(0.005)


def test_a_clock_that_is_an_hour_off_is_the_one_that_is_named() -> None:
    """Of three hosts the odd one out, though all others were measured against it."""
    apart = {("c", "a"): -3599.99, ("a", "c"): 3600.01, ("c", "b"): -3599.99, ("b", "c"): 3600.01}
    clocks = estimate(["a", "b", "c"], apart)
    assert clocks["c"].offset == pytest.approx(3600.0, abs=0.1)
    assert clocks["a"].offset == pytest.approx(0.0, abs=0.1)
    assert spread(clocks) > 3600


def test_one_direction_tells_only_what_cannot_be_otherwise() -> None:
    """A message that arrives before it was sent: a clock is off. One that takes a while: it took a while."""
    before = estimate(["a", "b"], {("a", "b"): -5.0})
    assert before["b"].offset - before["a"].offset == pytest.approx(-5.0, abs=0.01)
    slow = estimate(["a", "b"], {("a", "b"): 2.0})
    assert slow["a"].offset == slow["b"].offset == 0.0


def test_a_host_that_nobody_exchanges_messages_with_is_left_alone() -> None:
    """Nothing is known of its clock, and that is said."""
    clocks = estimate(["a", "b", "z"], {("a", "b"): 0.01, ("b", "a"): 0.01})
    assert clocks["z"].offset == 0.0
    assert clocks["z"].error is None


def test_a_clock_that_was_set_in_between_widens_what_clocks_may_be_apart() -> None:
    """b was 0.3 s ahead of a, and later 0.3 s behind: the fastest ways are below zero in both directions."""
    clocks = estimate(["a", "b"], {("a", "b"): -0.295, ("b", "a"): -0.295})
    assert clocks["b"].error == pytest.approx(0.295)
    assert spread(clocks) > 0.59
