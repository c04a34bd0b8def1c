"""Which member reads which partition: sticky, even, and away from members that cannot keep up.

Pure: what goes in decides what comes out, so that any member would write the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Load(msgspec.Struct, frozen=True):
    """What is known of a member."""

    stuck: bool = False
    """Whether its handler has not come back in time: it gets nothing."""
    slow: bool = False
    """Whether it is repeatedly slower than the others: it gets less."""


def assign(partitions: int, members: Mapping[str, Load], current: Mapping[int, str]) -> dict[int, str]:
    """The plan: every partition has a member, nobody has two more than another, and as little as possible moves.

    A slow member counts as having one more than it has.
    """
    able = sorted(name for name, load in members.items() if not load.stuck)
    if not able:
        return {}
    plan = {number: name for number, name in current.items() if number < partitions and name in able}
    count = {name: int(members[name].slow) for name in able}
    for name in plan.values():
        count[name] += 1
    for number in range(partitions):
        if number not in plan:
            plan[number] = min(able, key=lambda name: (count[name], name))
            count[plan[number]] += 1
    while True:
        least = min(able, key=lambda name: (count[name], name))
        most = max(able, key=lambda name: (count[name], name))
        movable = [number for number, name in plan.items() if name == most]
        if count[most] - count[least] < 2 or not movable:
            return dict(sorted(plan.items()))
        plan[max(movable)] = least
        count[most] -= 1
        count[least] += 1
