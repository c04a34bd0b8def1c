"""Queue limits: a publisher looks at a queue's length before it could be the one to overfill it.

ZooKeeper has no condition on child counts, so the limit is kept by budget: having seen a queue with room for r
messages, a publisher may add r/4 before it looks again. One publisher alone never exceeds a limit; p of them by at most
p budgets. A queue without room is flagged: one transaction marks the registration, leaves a gap entry as the queue's
last, and bumps the epoch, so that every publisher skips the queue until its owner has drained it and cleared the flag.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

from zkms.errors import ConnectionLost, NodeExists, NodeMissing, TransactionFailed
from zkms.membership import MAX_TOPICS, Member
from zkms.operations import Check, Create, SetData
from zkms.session import Session, failed_with
from zkms.tree import GapRecord, Tree, encode, entry_prefix, parse_entry

log = logging.getLogger("zkms.limits")
MAX_PER_FRAME = 4096
"""Messages in one entry at the most: lets a count of entries stand in for a count of messages."""


class Limits:
    """Budgets by topic and subscription. Thread-safe."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree
        self._budgets: OrderedDict[str, dict[str, int]] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, topic: str, members: Sequence[Member], count: int, deadline: float | None = None) -> bool:
        """Take `count` messages off the budgets, looking where they are used up; False if a queue had to be flagged."""
        with self._lock:
            budgets = self._budgets.setdefault(topic, {})
            self._budgets.move_to_end(topic)
            while len(self._budgets) > MAX_TOPICS:
                self._budgets.popitem(last=False)
            names = {member.subscription for member in members}
            for name in budgets.keys() - names:
                del budgets[name]
            short = [member for member in members if budgets.get(member.subscription, 0) < count]
            if not short:
                for name in names:
                    budgets[name] -= count
                return True
        return self._look(topic, members, short, count, deadline)

    def _look(
        self, topic: str, members: Sequence[Member], short: list[Member], count: int, deadline: float | None
    ) -> bool:
        room = self._room(topic, short, deadline)
        overfull = [member for member in short if room[member.subscription] < count]
        for member in overfull:
            self._flag(topic, member, deadline)
        with self._lock:
            budgets = self._budgets.setdefault(topic, {})
            for name, free in room.items():
                budgets[name] = max(count, free // 4) if free >= count else 0
            if not overfull:
                for member in members:
                    budgets[member.subscription] = budgets.get(member.subscription, 0) - count
        return not overfull

    def _room(self, topic: str, members: list[Member], deadline: float | None) -> dict[str, int]:
        """How many messages fit; counted from the names only where the number of entries does not settle it."""
        queues = {member: self._tree.queue(member.subscription, topic) for member in members}
        stats = {member: self._session.exists_async(queue) for member, queue in queues.items()}
        room = {}
        for member, reply in stats.items():
            again = partial(self._session.exists_async, queues[member])
            stat, limit = self._session.answer(reply, again, deadline=deadline), member.registration.limit
            if stat is None:  # a queue that is missing is found out by sending, and cannot be flagged
                room[member.subscription] = max(limit, MAX_PER_FRAME)
                continue
            used = stat.numChildren * MAX_PER_FRAME
            if used >= limit // 2:
                used = self._count(queues[member])
            room[member.subscription] = limit - used
        return room

    def _count(self, queue: str) -> int:
        try:
            names, _ = self._session.children(queue)
        except NodeMissing:
            return 0
        return sum(parse_entry(name).messages for name in names)

    def _flag(self, topic: str, member: Member, deadline: float | None) -> None:
        name, limit = member.subscription, member.registration.limit
        gap = encode(GapRecord(f"more than {limit} messages were waiting", full=True))
        entry = f"{self._tree.queue(name, topic)}/{entry_prefix(0, len(gap), gap=True)}"
        try:
            self._session.multi(
                [
                    Check(self._tree.registration(topic, name), -1),
                    Create(self._tree.full_flag(topic, name)),
                    Create(entry, gap, sequence=True),
                    SetData(self._tree.topic(topic), b""),
                ],
                deadline=deadline,
            )
            log.warning("%s of %s has %d messages waiting: skipped until it has caught up", topic, name, limit)
        except TransactionFailed as error:
            # Flagged by another publisher, or gone: either way the membership has changed.
            if not (failed_with(error, NodeExists) or failed_with(error, NodeMissing)):
                raise
        except ConnectionLost as error:
            if not error.outcome_unknown:
                raise
            log.info("flagging %s of %s again, the answer was lost", topic, name)  # if it is still over its limit
