"""The plan of a group: which member is to read which partition. The first member by name writes it.

Members that are stuck get none, and those that are slow for long get fewer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from zkms.consume.assignment import MemberLoad, assign, slow_ones
from zkms.errors import BadVersion
from zkms.tree.paths import Tree
from zkms.tree.records import GroupPlan, MemberState, decode_or_none, encode
from zkms.zookeeper.operations import SetData
from zkms.zookeeper.recipes import attempt, read_many
from zkms.zookeeper.session import Session

log = logging.getLogger("zkms.consume")
LOOK = 1.0
"""Seconds between two looks at how fast members are."""
REPEATEDLY, FORGIVEN = 3, 10
"""Looks in a row at which a member was slow until it gets less, and until which it counts."""


class Planner:
    """Writes the plan of one group. Not thread-safe."""

    def __init__(
        self, session: Session, tree: Tree, topic: str, name: str, partitions: int, changed: Callable[[], object]
    ) -> None:
        self._session = session
        self._tree = tree
        self._topic = topic
        self._name = name
        self._partitions = partitions
        self._changed = changed
        """Called when somebody else has written a plan meanwhile."""
        self._slow: dict[str, int] = {}
        """How often members were seen to be slow."""
        self._timed = 0.0

    def improve(self, plan: GroupPlan, members: list[str], version: int) -> GroupPlan:
        """Write a better plan, if there is one."""
        loads = self._loads(members)
        owners = assign(self._partitions, loads, plan.lanes)
        if owners == plan.lanes:
            return plan
        better = GroupPlan(owners)
        write = SetData(self._tree.group(self._name, self._topic), encode(better), version)
        if attempt(self._session, [write], BadVersion).stored:
            return better
        self._changed()
        return plan

    def _loads(self, members: list[str]) -> dict[str, MemberLoad]:
        found = read_many(
            self._session,
            members,
            lambda member: self._session.get_async(self._tree.member(self._name, self._topic, member)),
        )
        states = {member: decode_or_none(data, MemberState) or MemberState() for member, (data, _) in found.items()}
        self._watch_pace({member: state.pace for member, state in states.items()})
        return {
            member: MemberLoad(stuck=state.stuck, slow=self._slow.get(member, 0) >= REPEATEDLY)
            for member, state in states.items()
        }

    def _watch_pace(self, paces: dict[str, float]) -> None:
        """Count how often members were seen to be slow, once a second; those who are not any more are forgiven."""
        now = time.monotonic()
        if now - self._timed < LOOK:
            return
        self._timed = now
        slow = slow_ones(paces)
        seen = {member: min(FORGIVEN, self._slow.get(member, 0) + (1 if member in slow else -1)) for member in paces}
        self._slow = {member: times for member, times in seen.items() if times > 0}


def read_plan(data: bytes) -> GroupPlan:
    """The plan that a znode's data say; an empty one if they are none."""
    plan = decode_or_none(data, GroupPlan)
    if plan is None:
        log.warning("the plan of a group was overwritten by another program: made anew")
    return plan or GroupPlan()
