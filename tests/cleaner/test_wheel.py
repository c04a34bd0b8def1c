"""The timing wheel by itself, with a clock that the test turns."""

from __future__ import annotations

import random

import pytest
from zkms_cleaner.wheel import Wheel

START = 1_800_000_000.0
SPANS = [0.0, 0.004, 0.01, 0.63, 0.64, 0.65, 1.0, 40.9, 41.0, 2621.0, 2622.0, 100_000.0]
"""Seconds: within a tick, at the borders of each level, and beyond the last."""


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("offset", [0.0, 0.003, 0.37, 12.34])
def test_nothing_comes_early_and_all_of_it_on_time(span: float, offset: float) -> None:
    """Whatever level it is put into, an item comes with the first tick at or after the moment that it is due."""
    wheel: Wheel[str] = Wheel(START + offset)
    due = START + offset + span
    wheel.add(due, "it")
    assert wheel.advance(due - 0.0101) == []
    assert wheel.advance(due + 0.0101) == ["it"]
    assert len(wheel) == 0
    assert wheel.next_due() is None


def test_an_item_cascades_from_the_farthest_level_to_the_nearest() -> None:
    """Going from one moment that the wheel asks for to the next brings it down level by level, not tick by tick."""
    wheel: Wheel[str] = Wheel(START)
    wheel.add(START + 5000.123, "far")
    now, steps = START, 0
    while not (came := wheel.advance(now)):
        due = wheel.next_due()
        assert due is not None
        assert due > now
        now, steps = due, steps + 1
    assert came == ["far"]
    assert START + 5000.123 <= now <= START + 5000.134
    assert steps < 100


def test_items_come_in_the_order_of_being_due_and_of_adding() -> None:
    """Those of one tick in the order of adding, however many levels they came through."""
    wheel: Wheel[tuple[int, int]] = Wheel(START)
    chance = random.Random(7)
    added = []
    for number in range(5000):
        tick = chance.randrange(10_000)
        added.append((tick, number))
        wheel.add(START + tick / 100, (tick, number))
    came = []
    now = START
    while len(wheel):
        now += chance.choice((0.01, 0.5, 3.0))
        came += wheel.advance(now)
    assert came == sorted(added)


@pytest.mark.parametrize("seed", range(5))
def test_the_wheel_agrees_with_a_sorted_list(seed: int) -> None:
    """Adding and advancing at random: never early, and never later than a tick."""
    chance = random.Random(seed)
    now = START
    wheel: Wheel[float] = Wheel(now, tick=0.05, slots=8, levels=3)
    waiting: list[float] = []
    for _ in range(1000):
        if chance.random() < 0.5:
            due = now + chance.choice((0.0, 0.1, 2.0, 20.0, 200.0)) * chance.random()
            waiting.append(due)
            wheel.add(due, due)
        now += chance.choice((0.0, 0.01, 0.1, 1.0, 30.0)) * chance.random()
        came = wheel.advance(now)
        assert all(due <= now for due in came)
        for due in came:
            waiting.remove(due)
        assert all(due > now - 0.0501 for due in waiting)
        assert len(wheel) == len(waiting)


def test_a_clock_that_is_set_back_brings_nothing_early() -> None:
    """What was due by the old time and not given out waits for the new time."""
    wheel: Wheel[str] = Wheel(START)
    wheel.add(START + 1.0, "it")
    assert wheel.advance(START - 3600.0) == []
    wheel.add(START - 1800.0, "sooner")
    assert wheel.advance(START - 1800.0) == ["sooner"]
    assert wheel.advance(START + 0.98) == []
    assert wheel.advance(START + 1.0) == ["it"]


def test_a_clock_that_leaps_brings_all_at_once() -> None:
    """As after a sleep of the machine: in the order of being due, and quickly."""
    wheel: Wheel[int] = Wheel(START)
    for second in (5, 3, 7_000, 40):
        wheel.add(START + second, second)
    assert wheel.advance(START + 10 * 365 * 86_400) == [3, 5, 40, 7_000]


def test_a_cleared_wheel_is_empty() -> None:
    """Nothing of what it held comes any more."""
    wheel: Wheel[int] = Wheel(START)
    for second in (0, 1, 100, 10_000):
        wheel.add(START + second, second)
    wheel.clear()
    assert len(wheel) == 0
    assert wheel.next_due() is None
    assert wheel.advance(START + 20_000) == []
