"""Flat or growing: what the soak's verdict finds, and what it is not taken in by."""

from __future__ import annotations

import random

import pytest

from verification.soak.verdict import BOUNDS, Bound, judge, slope

TIMES = [5.0 * i for i in range(120)]


def _growing(values: list[float], bound: Bound = BOUNDS["rss_mb"]) -> bool:
    judgement = judge("series", list(zip(TIMES, values, strict=True)), bound)
    assert judgement is not None
    return judgement.growing


def _noise(size: float) -> list[float]:
    chance = random.Random(3)
    return [chance.gauss(0.0, size) for _ in TIMES]


def test_noise_is_flat() -> None:
    """Memory that goes up and down by a megabyte is not growing."""
    assert not _growing([60.0 + each for each in _noise(1.0)])


def test_a_steady_leak_is_found_in_the_noise() -> None:
    """Twelve megabytes over a run, hidden in a noise of one."""
    assert _growing([60.0 + 12.0 * i / len(TIMES) + each for i, each in enumerate(_noise(1.0))])


@pytest.mark.parametrize("kind", ["threads", "files"])
def test_a_few_threads_or_files_more_are_found(kind: str) -> None:
    """They are counted exactly, so a handful is a leak."""
    assert _growing([float(12 + i // 10) for i in range(len(TIMES))], BOUNDS[kind])
    assert not _growing([float(12 + (i % 7 == 0)) for i in range(len(TIMES))], BOUNDS[kind])


def test_warming_up_does_not_count() -> None:
    """What is taken in the first half and kept is no leak."""
    assert not _growing([40.0 + min(20.0, i / 2) for i in range(len(TIMES))])


def test_a_sawtooth_and_a_spike_are_flat() -> None:
    """Garbage that is collected now and then, and one bad moment at the end."""
    assert not _growing([60.0 + i % 13 for i in range(len(TIMES))])
    assert not _growing([60.0] * 117 + [200.0] * 3)


def test_too_few_points_are_not_judged() -> None:
    """Nothing is better than a guess."""
    assert judge("series", [(0.0, 1.0), (1.0, 2.0)], BOUNDS["threads"]) is None
    assert judge("series", [], BOUNDS["threads"]) is None


def test_the_slope_is_that_of_the_line() -> None:
    """Half a unit a second, with a tenth of the points far off."""
    points = [(at, 3.0 + at / 2 + (500.0 if i % 10 == 0 else 0.0)) for i, at in enumerate(TIMES)]
    assert slope(points) == pytest.approx(0.5, rel=0.2)
