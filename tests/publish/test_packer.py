"""Frames are packed in one way, whether messages come one by one or many at once."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from zkms.message.frame import Packed
from zkms.publish.packer import Packer

sizes = st.lists(st.integers(1, 50), max_size=100)
budgets = st.tuples(st.integers(1, 100), st.integers(1, 10))


def message(size: int) -> Packed:
    """One of so many bytes."""
    return Packed(b"", size)


def filled(sizes: list[int], budget: tuple[int, int], at_a_time: int) -> list[list[int]]:
    """The frames that `fill` makes, with several calls."""
    packer, frames = Packer(budget), []
    for start in range(0, len(sizes), at_a_time):
        frames += packer.fill(map(message, sizes[start : start + at_a_time]))
    return [[each.size for each in frame] for frame in (*frames, packer.packed)]


def taken(sizes: list[int], budget: tuple[int, int]) -> list[list[int]]:
    """The frames that `take` makes."""
    packers = [Packer(budget)]
    for each in map(message, sizes):
        if not packers[-1].take(each):
            packers.append(Packer(budget))
            assert packers[-1].take(each)
    return [[each.size for each in packer.packed] for packer in packers]


@given(sizes, budgets, st.integers(1, 20))
def test_both_ways_make_the_same_frames(sizes: list[int], budget: tuple[int, int], at_a_time: int) -> None:
    """In order, within the budget but for a message that is larger alone, and none that could have held the next."""
    frames = taken(sizes, budget)
    assert filled(sizes, budget, at_a_time) == frames
    assert [size for frame in frames for size in frame] == sizes
    for frame in frames:
        assert len(frame) <= budget[1]
        assert sum(frame) <= budget[0] or len(frame) == 1
    for frame, following in itertools.pairwise(frames):
        assert len(frame) == budget[1] or sum(frame) + following[0] > budget[0]


def test_the_budget_may_change_from_frame_to_frame() -> None:
    """As the audience does."""
    packer, frames = Packer((100, 2)), []
    for frame in packer.fill(map(message, [1] * 10)):
        frames.append(len(frame))
        packer.budget = 100, len(frame) + 1
    assert ([*frames, len(packer.packed)]) == [2, 3, 4, 1]
