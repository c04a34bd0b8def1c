"""Which member reads which partition: sticky, even, and away from members that cannot keep up.

Pure: what goes in decides what comes out, so that any member would write the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import msgspec

SLOWER = 3.0
"""A member is slow if a message takes it so many times longer than the others."""
NOTICED = 0.005
"""Seconds a message below which nobody is slow."""


class MemberLoad(msgspec.Struct, frozen=True):
    """What is known of a member."""

    stuck: bool = False
    """Whether its handler has not come back in time: it gets nothing."""
    slow: bool = False
    """Whether it is repeatedly slower than the others: it gets half as much."""

    @property
    def weight(self) -> int:
        """What a partition weighs in flight with it."""
        return 2 if self.slow else 1


def assign(partitions: int, members: Mapping[str, MemberLoad], current: Mapping[int, str]) -> dict[int, str]:
    """The plan: every partition has a member, all carry about the same, and as little as possible moves."""
    able = sorted(name for name, load in members.items() if not load.stuck)
    if not able:
        return {}
    plan = {number: name for number in range(partitions) if (name := current.get(number)) in able}
    count = dict.fromkeys(able, 0)
    for name in plan.values():
        count[name] += 1

    def with_one_more(name: str) -> tuple[int, str]:
        return (count[name] + 1) * members[name].weight, name

    for number in range(partitions):
        if number not in plan:
            plan[number] = min(able, key=with_one_more)
            count[plan[number]] += 1
    while True:
        least = min(able, key=with_one_more)
        most = max(able, key=lambda name: (count[name] * members[name].weight, name))
        if with_one_more(least)[0] >= count[most] * members[most].weight:
            return dict(sorted(plan.items()))
        plan[max(number for number, name in plan.items() if name == most)] = least
        count[most] -= 1
        count[least] += 1


def slow_ones(paces: Mapping[str, float]) -> set[str]:
    """Members whose messages take much longer than those of the others, going by seconds a message."""
    found = set()
    for name, pace in paces.items():
        others = [other for who, other in paces.items() if who != name and other > 0]
        if others and pace > max(NOTICED, SLOWER * median(others)):
            found.add(name)
    return found
