"""Queue limits: a publisher looks at a queue's length before it could be the one to overfill it.

ZooKeeper has no condition on child counts, so the limit is kept by budget: having seen a queue with room for r
messages, a publisher may add r/4 before it looks again. One publisher alone never exceeds a limit; p of them by at most
p budgets. A queue without room is flagged: one transaction marks the registration, leaves a gap entry as the queue's
last, and bumps the epoch, so that every publisher skips the queue until its owner has drained it and cleared the flag.
Bytes are bounded in the same way: a few large messages must not fill ZooKeeper's memory, nor keep a producer's bodies.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from zkms.errors import ConnectionLost, NodeExists, NodeMissing, TransactionFailed
from zkms.membership import MAX_TOPICS, Member
from zkms.operations import MAX_TRANSACTION, Check, Create, SetData
from zkms.session import Session, failed_with
from zkms.tree import GapRecord, Tree, encode, entry_prefix, parse_entry

log = logging.getLogger("zkms.limits")
MAX_PER_FRAME = 4096
"""Messages in one entry at the most: lets a count of entries stand in for a count of messages."""


MAX_ENTRIES = 50_000
"""Entries in one queue, however small: a listing of more would be a reply of many megabytes."""


class Room(NamedTuple):
    """How much fits into a queue, or is to be put there."""

    messages: int = 0
    size: int = 0
    entries: int = 1

    def holds(self, need: Room) -> bool:
        """Whether there is room for it."""
        return self.messages >= need.messages and self.size >= need.size and self.entries >= need.entries

    def less(self, used: Room) -> Room:
        """What is left."""
        return Room(self.messages - used.messages, self.size - used.size, self.entries - used.entries)

    def budget(self, need: Room) -> Room:
        """What a publisher that has seen this much room may use before it looks again."""
        return Room(*(max(needed, free // 4) for needed, free in zip(need, self, strict=True)))


NONE = Room(0, 0, 0)


class Limits:
    """Budgets by topic and subscription. Thread-safe."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree
        self._budgets: OrderedDict[str, dict[str, Room]] = OrderedDict()
        self._lock = threading.Lock()

    def admit(self, topic: str, members: Sequence[Member], need: Room, deadline: float | None = None) -> bool:
        """Take `need` off the budgets, looking where they are used up; False if a queue had to be flagged."""
        with self._lock:
            budgets = self._budgets.setdefault(topic, {})
            self._budgets.move_to_end(topic)
            while len(self._budgets) > MAX_TOPICS:
                self._budgets.popitem(last=False)
            names = {member.subscription for member in members}
            for name in budgets.keys() - names:
                del budgets[name]
            short = [member for member in members if not budgets.get(member.subscription, NONE).holds(need)]
            if not short:
                for name in names:
                    budgets[name] = budgets[name].less(need)
                return True
        return self._look(topic, members, short, need, deadline)

    def _look(
        self, topic: str, members: Sequence[Member], short: list[Member], need: Room, deadline: float | None
    ) -> bool:
        room = self._room(topic, short, deadline)
        overfull = [member for member in short if not room[member.subscription].holds(need)]
        for member in overfull:
            self._flag(topic, member.subscription, _excess(member, room[member.subscription], need), deadline)
        with self._lock:
            budgets = self._budgets.setdefault(topic, {})
            for name, free in room.items():
                budgets[name] = free.budget(need) if free.holds(need) else NONE
            if not overfull:
                for member in members:
                    budgets[member.subscription] = budgets.get(member.subscription, NONE).less(need)
        return not overfull

    def _room(self, topic: str, members: list[Member], deadline: float | None) -> dict[str, Room]:
        """How much fits; counted from the names only where the number of entries does not settle it."""
        queues = {member: self._tree.queue(member.subscription, topic) for member in members}
        stats = {member: self._session.exists_async(queue) for member, queue in queues.items()}
        room = {}
        for member, reply in stats.items():
            again = partial(self._session.exists_async, queues[member])
            stat = self._session.answer(reply, again, deadline=deadline)
            whole = Room(member.registration.limit, member.registration.max_bytes, MAX_ENTRIES)
            if stat is None:  # a queue that is missing is found out by sending, and cannot be flagged
                room[member.subscription] = Room(max(whole.messages, MAX_PER_FRAME), whole.size, whole.entries)
                continue
            entries = stat.numChildren
            used = Room(entries * MAX_PER_FRAME, entries * MAX_TRANSACTION, entries)
            if entries < MAX_ENTRIES and (used.messages >= whole.messages // 2 or used.size >= whole.size // 2):
                used = self._count(queues[member])
            room[member.subscription] = whole.less(used)
        return room

    def _count(self, queue: str) -> Room:
        try:
            names, _ = self._session.children(queue)
        except NodeMissing:
            return NONE
        entries = [parse_entry(name) for name in names]
        return Room(sum(entry.messages for entry in entries), sum(entry.size for entry in entries), len(entries))

    def _flag(self, topic: str, name: str, what: str, deadline: float | None) -> None:
        gap = encode(GapRecord(f"more than {what} were waiting", full=True))
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
            log.warning("%s of %s has %s waiting: skipped until it has caught up", topic, name, what)
        except TransactionFailed as error:
            # Flagged by another publisher, or gone: either way the membership has changed.
            if not (failed_with(error, NodeExists) or failed_with(error, NodeMissing)):
                raise
        except ConnectionLost as error:
            if not error.outcome_unknown:
                raise
            log.info("flagging %s of %s again, the answer was lost", topic, name)  # if it is still over its limit


def _excess(member: Member, room: Room, need: Room) -> str:
    if room.messages < need.messages:
        return f"{member.registration.limit} messages"
    if room.size < need.size:
        return f"{member.registration.max_bytes:,} bytes"
    return f"{MAX_ENTRIES:,} entries"
