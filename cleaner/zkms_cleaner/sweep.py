"""One pass of the cleaner over the tree.

A queue whose registration has been missing for the grace period is condemned by one transaction: check that we lead,
write the reason into the queue at the version we read, prove that the registration does not exist (create and delete
it), bump the topic's epoch. A subscriber that comes back at that moment either registers first, and we fail, or finds
its queue condemned and takes a new one. Only then are the entries removed, in large transactions that check the lead too.
A producer's node goes when its client has been gone and silent for long.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import msgspec

from zkms.discovery import Discovery
from zkms.errors import BadVersion, NodeExists, NodeMissing, TransactionFailed
from zkms.operations import Create, Delete, Operation, SetData
from zkms.purge import delete_queue
from zkms.session import Session, failed_with
from zkms.tree import FULL_MARK, ProducerState, QueueState, Tree, decode, encode
from zkms_cleaner.election import Lead

log = logging.getLogger("zkms.cleaner")
DEAD = "purged: its subscriber is gone"
PRODUCER_IDLE = 3600.0


class Finding(msgspec.Struct, frozen=True):
    """Something that a sweep removes, or would remove."""

    kind: str
    """queue, empty, flag or producer"""
    path: str
    reason: str
    entries: int = 0
    due_in: float = 0.0
    """Seconds of grace that are left; 0 if it is removed now."""


class Sweeper:
    """Finds and removes orphans; remembers since when it has seen each, by its own monotonic clock."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        *,
        grace: float,
        producer_idle: float = PRODUCER_IDLE,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._tree = tree
        self._grace = grace
        self._producer_idle = producer_idle
        self._clock = clock
        self._wall_clock = wall_clock
        self._discovery = Discovery(session, tree)
        self._seen: dict[str, float] = {}

    def find(self) -> list[Finding]:
        """What is orphaned now; nothing is changed."""
        found = [*self._queues(), *self._empty(), *self._flags(), *self._producers()]
        self._seen = {f.path: self._seen[f.path] for f in found if f.path in self._seen}
        return found

    def sweep(self, lead: Lead, purged: Callable[[Finding], None] = lambda _finding: None) -> list[Finding]:
        """Remove what is due, telling `purged` of each; a lost lead raises `TransactionFailed` and ends the sweep."""
        removed = []
        for finding in self.find():
            if finding.due_in <= 0 and (done := self._remove(lead, finding)) is not None:
                removed.append(done)
                purged(done)
        return removed

    # -- finding -------------------------------------------------------------------------------------------------

    def _due_in(self, path: str) -> float:
        now = self._clock()
        return max(0.0, self._seen.setdefault(path, now) + self._grace - now)

    def _queues(self) -> list[Finding]:
        found = []
        for queue in self._discovery.queues():
            path = self._tree.queue(queue.subscription, queue.topic)
            if queue.registered:
                continue
            condemned = queue.state not in ("open", "garbage")
            reason = queue.state if condemned else f"client {queue.client or '?'} is gone"
            found.append(Finding("queue", path, reason, queue.entries, 0.0 if condemned else self._due_in(path)))
        return found

    def _empty(self) -> list[Finding]:
        """Subscriptions without a queue: left by a removal that was cut short."""
        found = []
        for name in self._children(self._tree.messages):
            path = self._tree.subscription(name)
            stat = self._session.exists(path)
            if stat is not None and stat.numChildren == 0:
                found.append(Finding("empty", path, "has no queues", 0, self._due_in(path)))
        return found

    def _flags(self) -> list[Finding]:
        """Flags of subscriptions that are gone."""
        found = []
        for topic in self._children(self._tree.subscribers):
            names = set(self._children(self._tree.topic(topic)))
            for name in names:
                if name.endswith(FULL_MARK) and name.removesuffix(FULL_MARK) not in names:
                    path = self._tree.registration(topic, name)
                    found.append(Finding("flag", path, "its subscription is gone", 0, self._due_in(path)))
        return found

    def _producers(self) -> list[Finding]:
        found = []
        clients = set(self._children(self._tree.clients))
        for name in self._children(self._tree.producers):
            path = self._tree.producer(name)
            if name in clients:
                continue
            try:
                data, stat = self._session.get(path)
                owner = decode(data, ProducerState).owner
            except (NodeMissing, msgspec.MsgspecError):
                continue  # gone, or not ours to judge
            idle = self._wall_clock() - stat.mtime / 1000
            # A named producer keeps its numbers across restarts: only nodes named after their client are collected.
            if owner == name and idle >= self._producer_idle:
                found.append(Finding("producer", path, f"client {owner} is gone, silent for {idle:.0f} s"))
        return found

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self._session.children(path)[0])
        except NodeMissing:
            return []

    # -- removing ------------------------------------------------------------------------------------------------

    def _remove(self, lead: Lead, finding: Finding) -> Finding | None:
        """The finding with what was really removed, or None if it came back to life."""
        entries = finding.entries
        try:
            if finding.kind == "queue":
                subscription, topic = finding.path.split("/")[-2:]
                if not self._condemn(lead, subscription, topic):
                    return None
                entries = delete_queue(self._session, finding.path, lead.guard)
            elif finding.kind == "producer":
                client = self._tree.client(finding.path.rsplit("/", 1)[1])
                stat = self._session.exists(finding.path)
                if stat is None:
                    return None
                absent: list[Operation] = [Create(client), Delete(client)]
                self._session.multi([*lead.guard, *absent, Delete(finding.path, stat.version)])
            else:
                self._session.multi([*lead.guard, Delete(finding.path)])
        except TransactionFailed as error:
            if error.index < len(lead.guard):
                raise
            log.info("%s is not removed: %s", finding.path, error.cause)
            return None
        self._seen.pop(finding.path, None)
        log.info("purged %s %s (%d entries): %s", finding.kind, finding.path, entries, finding.reason)
        return msgspec.structs.replace(finding, entries=entries)

    def _condemn(self, lead: Lead, subscription: str, topic: str) -> bool:
        """Make the queue unusable for good; False if somebody registered for it."""
        queue = self._tree.queue(subscription, topic)
        registration = self._tree.registration(topic, subscription)
        flag = self._tree.full_flag(topic, subscription)
        try:
            data, stat = self._session.get(queue)
        except NodeMissing:
            return False
        try:
            state = decode(data, QueueState)
        except msgspec.MsgspecError:
            state = QueueState("")
        if state.gone:
            return True
        operations: list[Operation] = [
            *lead.guard,
            SetData(queue, encode(QueueState(state.client, gone=DEAD)), stat.version),
        ]
        if self._session.exists(self._tree.topic(topic)) is not None:
            operations += [Create(registration), Delete(registration)]
            if self._session.exists(flag) is not None:
                operations.append(Delete(flag))
            operations.append(SetData(self._tree.topic(topic), b""))
        try:
            self._session.multi(operations)
        except TransactionFailed as error:
            if error.index >= len(lead.guard) and any(
                failed_with(error, kind) for kind in (BadVersion, NodeExists, NodeMissing)
            ):
                return False
            raise
        return True
