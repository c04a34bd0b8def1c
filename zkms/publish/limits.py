"""Queue limits: a publisher reads a queue's length before it could overfill it.

ZooKeeper has no condition on child counts, so limits are kept by budget: a publisher that has seen room for r messages
may add r/4 before it looks again. One publisher alone never exceeds a limit; p of them exceed it by at most p budgets.

What happens to a full queue depends on the subscription's `overflow`. "gap": one transaction sets the full flag, adds a
gap entry as the queue's last, and bumps the epoch, so that every publisher skips the queue until its reader has drained
it and cleared the flag. The epoch must be the one known before the look: otherwise a publisher that was delayed, while
another flagged the queue and it was drained, would announce a gap where nothing is missing. "reject": the publish fails
with `QueueFull`. "drop-oldest": the oldest entries are deleted, and a gap entry is added.

Bytes are limited in the same way: a few large messages must not fill ZooKeeper's memory, or a producer's bodies.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from zkms.errors import BadVersion, ConnectionLost, NodeExists, NodeMissing, QueueFull, TransactionFailed, Unauthorised
from zkms.publish.audience import MAX_TOPICS, Member, Members, QueueTarget
from zkms.tree.acl import acl
from zkms.tree.entry import Entry, entry_prefix, parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import GapRecord, QueueState, decode, encode
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Create, Delete, Operation, SetData
from zkms.zookeeper.session import Session, failed_with

log = logging.getLogger("zkms.publish")
MAX_PER_FRAME = 4096
"""The most messages in one entry: so a count of entries bounds the count of messages."""
MAX_ENTRIES = 50_000
"""The most entries in one queue, however small: a listing of more would be a reply of many megabytes."""
MAX_QUEUES = 10_000
MAX_DROPPED = 1_000
"""The most entries dropped at a time."""


class Room(NamedTuple):
    """An amount: what fits into a queue, or what a frame needs."""

    messages: int = 0
    size: int = 0
    entries: int = 1

    def holds(self, need: Room) -> bool:
        """Whether `need` fits."""
        return self.messages >= need.messages and self.size >= need.size and self.entries >= need.entries

    def less(self, used: Room) -> Room:
        """Return what is left."""
        return Room(self.messages - used.messages, self.size - used.size, self.entries - used.entries)

    def budget(self, need: Room) -> Room:
        """Return what a publisher that has seen this much room may use before it looks again."""
        return Room(*(max(needed, free // 4) for needed, free in zip(need, self, strict=True)))


NONE = Room(0, 0, 0)


class Limits:
    """Budgets by topic and queue. Thread-safe."""

    def __init__(self, session: Session, tree: Tree, dropped: Callable[[QueueTarget, list[str], str], None]) -> None:
        self._session = session
        self._tree = tree
        self._dropped = dropped
        """Called with the names of dropped entries, and the reason."""
        self._budgets: OrderedDict[str, dict[tuple[str, str], Room]] = OrderedDict()
        self._lock = threading.Lock()

    def admit(
        self, topic: str, snapshot: Members, targets: Sequence[QueueTarget], need: Room, deadline: float | None = None
    ) -> bool:
        """Take `need` off the budgets, renewing those that are used up; False if a queue had no room.

        `snapshot` is what the targets were chosen from. Raises `QueueFull` if a full queue rejects messages.
        """
        with self._lock:
            budgets = self._budgets.setdefault(topic, {})
            self._budgets.move_to_end(topic)
            while len(self._budgets) > MAX_TOPICS:
                self._budgets.popitem(last=False)
            while len(budgets) > MAX_QUEUES:
                budgets.pop(next(iter(budgets)))
            short = [target for target in targets if not budgets.get(target.queue, NONE).holds(need)]
            if not short:
                for target in targets:
                    budgets[target.queue] = budgets[target.queue].less(need)
                return True
        return self._look(topic, snapshot, targets, short, need, deadline)

    def _look(
        self,
        topic: str,
        snapshot: Members,
        targets: Sequence[QueueTarget],
        short: list[QueueTarget],
        need: Room,
        deadline: float | None,
    ) -> bool:
        room = self._room(short, deadline)
        overfull = [target for target in short if not room[target.queue].holds(need)]
        epochs = {target.member.topic: snapshot.epoch_of(target.member.topic) for target in overfull}
        for target in sorted(overfull, key=lambda target: target.member.registration.overflow != "reject"):
            if not self._overflow(target, epochs, _excess(target.member, room[target.queue], need), need, deadline):
                break
        with self._lock:
            budgets = self._budgets.setdefault(topic, {})
            for queue, free in room.items():
                budgets[queue] = free.budget(need) if free.holds(need) else NONE
            if not overfull:
                for target in targets:
                    budgets[target.queue] = budgets.get(target.queue, NONE).less(need)
        return not overfull

    def _overflow(
        self, target: QueueTarget, epochs: dict[str, int], what: str, need: Room, deadline: float | None
    ) -> bool:
        """Apply the subscription's overflow policy; False if the subscriptions have changed meanwhile."""
        member = target.member
        if member.registration.overflow == "reject":
            raise QueueFull(member.topic, member.subscription, what)
        if member.registration.overflow == "drop-oldest":
            self._drop_oldest(target, what, need)
            return True
        return self._flag(target, epochs, what, deadline)

    def _room(self, targets: list[QueueTarget], deadline: float | None) -> dict[tuple[str, str], Room]:
        """Return how much fits; the names are read only where the number of entries does not suffice."""
        stats = [(target, self._session.exists_async(self._path(target))) for target in targets]
        room = {}
        for target, reply in stats:
            again = partial(self._session.exists_async, self._path(target))
            stat = self._session.answer(reply, again, deadline=deadline)
            registration = target.member.registration
            whole = Room(registration.limit, registration.max_bytes, MAX_ENTRIES)
            if stat is None:  # a missing queue is found by sending, and cannot be flagged
                room[target.queue] = Room(max(whole.messages, MAX_PER_FRAME), whole.size, whole.entries)
                continue
            entries = stat.numChildren
            used = Room(entries * MAX_PER_FRAME, entries * MAX_TRANSACTION, entries)
            if entries < MAX_ENTRIES and (used.messages >= whole.messages // 2 or used.size >= whole.size // 2):
                used = self._count(self._path(target))
            room[target.queue] = whole.less(used)
        return room

    def _path(self, target: QueueTarget) -> str:
        return self._tree.queue(*target.queue)

    def _drop_oldest(self, target: QueueTarget, what: str, need: Room) -> None:
        """Delete the oldest entries to make room for `need` and for a publisher's budget, so that this is rare.

        A gap entry tells the reader, also one that connects later. One gap behind all dropped entries is enough.
        """
        queue = self._path(target)
        registration = target.member.registration
        whole = Room(registration.limit, registration.max_bytes, MAX_ENTRIES)
        entries = sorted(map(parse_entry, self._session.children(queue)[0]))
        used = Room(sum(e.messages for e in entries), sum(e.size for e in entries), len(entries))
        wanted = Room(*(min(total, n + total // 4) for total, n in zip(whole, need, strict=True)))
        dropped: list[Entry] = []
        while len(dropped) < min(len(entries), MAX_DROPPED) and not whole.less(used).holds(wanted):
            entry = entries[len(dropped)]
            dropped.append(entry)
            used = used.less(Room(entry.messages, entry.size, 1))
        if not dropped:
            return
        reason = f"dropped: more than {what} were waiting"
        try:
            data, stat = self._session.get(queue)
            state = decode(data, QueueState)
            marked = msgspec.structs.replace(state, dropped=max(state.dropped, dropped[-1].sequence), reason=reason)
            operations: list[Operation] = [SetData(queue, encode(marked), stat.version)]
            if not any(entry.gap for entry in entries[len(dropped) :]):
                gap = encode(GapRecord(reason))
                name = entry_prefix(0, len(gap), gap=True)
                operations.append(Create(f"{queue}/{name}", gap, sequence=True, acl=acl(target.member.acl)))
            operations += [Delete(f"{queue}/{entry.name}") for entry in dropped]
            self._session.multi(operations)
            self._dropped(target, [entry.name for entry in dropped], reason)
            log.warning("%s: %d entries dropped, more than %s were waiting", queue, len(dropped), what)
        except (TransactionFailed, NodeMissing, msgspec.MsgspecError) as error:
            if failed_with(error, Unauthorised):  # only the queue's owner may delete entries
                raise QueueFull(target.member.topic, target.member.subscription, what) from error
            log.info("%s has changed meanwhile, looking again: %s", queue, error)

    def _count(self, queue: str) -> Room:
        try:
            names, _ = self._session.children(queue)
        except NodeMissing:
            return NONE
        entries = [parse_entry(name) for name in names]
        return Room(sum(entry.messages for entry in entries), sum(entry.size for entry in entries), len(entries))

    def _flag(self, target: QueueTarget, epochs: dict[str, int], what: str, deadline: float | None) -> bool:
        """Set the full flag at the known epoch, which is bumped; False if the subscriptions have changed meanwhile."""
        name, topic = target.queue
        gap = encode(GapRecord(f"more than {what} were waiting", full=True))
        entry = f"{self._tree.queue(name, topic)}/{entry_prefix(0, len(gap), gap=True)}"
        try:
            *_, bumped = self._session.multi(
                [
                    Check(self._tree.registration(topic, name), -1),
                    Create(self._tree.full_flag(topic, name)),
                    Create(entry, gap, sequence=True, acl=acl(target.member.acl)),
                    SetData(self._tree.topic(topic), b"", epochs[topic]),
                ],
                deadline=deadline,
            )
            epochs[topic] = bumped.version
            log.warning("%s of %s has %s waiting: skipped until it has caught up", topic, name, what)
            return True
        except TransactionFailed as error:
            # Flagged by another publisher, perhaps drained since, or unsubscribed: look again.
            if not any(failed_with(error, kind) for kind in (NodeExists, NodeMissing, BadVersion)):
                raise
        except ConnectionLost as error:
            if not error.outcome_unknown:
                raise
            log.info("flagging %s of %s again, the answer was lost", topic, name)  # if it is still over its limit
        return False


def _excess(member: Member, room: Room, need: Room) -> str:
    if room.messages < need.messages:
        return f"{member.registration.limit} messages"
    if room.size < need.size:
        return f"{member.registration.max_bytes:,} bytes"
    return f"{MAX_ENTRIES:,} entries"
