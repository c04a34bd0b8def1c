"""Finds what nobody owns any more with few requests: one a subscription, one a topic, one for each orphan.

Queues are listed before registrations. A subscriber creates both in one transaction, so a queue in the first listing
without a registration in the second has no subscriber. The queues of a large group may be created before it is
registered; the registration writes to them, so a queue that was found without one is not condemned after that.
ZooKeeper counts the entries, so queues are listed only where a dead producer has left bodies. Bodies are listed before
the queues: a body that no queue names then is not needed by anybody.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

import msgspec

from zkms.errors import ConnectionLost, NodeMissing, StoreError, Unauthorised
from zkms.names import FULL_MARK
from zkms.publish.bodies import all_queues, names_in
from zkms.tree.paths import Tree, subscription_of
from zkms.tree.records import ProducerState, QueueState, Restores, decode, decode_or_none
from zkms.zookeeper.recipes import children_of, read_many
from zkms.zookeeper.session import Session
from zkms.zookeeper.wire import Stat

log = logging.getLogger("zkms.cleaner")
PRODUCER_IDLE = 3600.0
PURGED = "purged: its subscriber is gone"
"""What a queue says from the moment the cleaner has condemned it."""
A = TypeVar("A")
B = TypeVar("B")


class OrphanFinding(msgspec.Struct, frozen=True):
    """Something that a sweep removes, or would remove."""

    kind: str
    """queue, empty, flag, body or producer; of leftovers: expired, ids, group, nothing, subscription or topics"""
    path: str
    reason: str
    entries: int = 0
    due_in: float = 0.0
    """Seconds of grace that are left; 0 if it is removed now."""
    version: int = -1
    """The znode's version when it was found: whoever comes back to it changes that."""
    data: bytes = b""
    condemned: bool = False
    """A queue that nobody can come back to."""
    topic_exists: bool = False
    flagged: bool = False
    restore: int = -1
    """Of a queue that a restore fills: the version of the restore's journal, which it goes on writing; else -1."""
    alone: bool = False
    """The last queue of its subscription, whose znode goes with it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.path} ({self.entries} entries): {self.reason}"


class Orphans:
    """Finds orphans; what cannot be read is logged and left alone."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        *,
        producer_idle: float = PRODUCER_IDLE,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._tree = tree
        self._producer_idle = producer_idle
        self.topics: dict[str, Stat] = {}
        """The topics, as they were listed last."""
        self._wall_clock = wall_clock

    def find(self) -> list[OrphanFinding]:
        """What is orphaned now."""
        tree, session = self._tree, self._session
        owners = self._ask(
            children_of(self._session, tree.messages), lambda name: session.children_async(tree.subscription(name))
        )
        queues = [(owner, topic) for owner, (topics, _) in owners.items() for topic in sorted(topics)]
        empty = [
            OrphanFinding("empty", tree.subscription(owner), "has no queues", version=stat.cversion)
            for owner, (topics, stat) in owners.items()
            if not topics
        ]
        names = children_of(self._session, tree.subscribers)
        unreadable: set[str] = set()
        listed = self._ask(names, lambda name: session.children_async(tree.topic(name)), unreadable)
        topics = {name: set(children) for name, (children, _) in listed.items()}
        self.topics = {name: stat for name, (_, stat) in listed.items()}
        clients = set(children_of(self._session, tree.clients))
        orphaned = [
            (owner, topic)
            for owner, topic in queues
            if topic not in unreadable and subscription_of(owner) not in topics.get(topic, ())
        ]
        siblings = {owner: len(children) for owner, (children, _) in owners.items()}
        return [
            *self._queues(orphaned, topics, siblings, clients),
            *empty,
            *self._flags(topics, set(orphaned)),
            *self._bodies(clients),
            *self._producers(clients),
        ]

    def _queues(
        self, orphaned: list[tuple[str, str]], topics: dict[str, set[str]], siblings: dict[str, int], clients: set[str]
    ) -> list[OrphanFinding]:
        found = []
        read = self._ask(orphaned, lambda pair: self._session.get_async(self._tree.queue(*pair)))
        claim, journal = self._restore() if orphaned else ("", -1)
        for (owner, topic), (data, stat) in read.items():
            state = decode_or_none(data, QueueState)
            if state is None:
                state, reason = QueueState(""), "nobody is registered for it, and its data are not ours"
            else:
                subscriber = f"client {state.client}" if state.client.isprintable() else "a client of no name"
                presence = "is connected but not registered for it" if state.client in clients else "is gone"
                reason = state.gone or f"its subscriber, {subscriber}, {presence}"
            found.append(
                OrphanFinding(
                    "queue",
                    self._tree.queue(owner, topic),
                    reason,
                    stat.numChildren,
                    version=stat.version,
                    data=data,
                    condemned=bool(state.gone),
                    topic_exists=topic in topics,
                    flagged=f"{owner}{FULL_MARK}" in topics.get(topic, ()),
                    restore=journal if claim and state.restore == claim else -1,
                    alone=siblings[owner] == 1,
                )
            )
        return found

    def _restore(self) -> tuple[str, int]:
        """The claim of the last restore, and the version of its journal."""
        try:
            data, stat = self._session.get(self._tree.restores)
            return decode(data, Restores).claim, stat.version
        except (NodeMissing, Unauthorised, msgspec.MsgspecError):
            return "", -1

    def _flags(self, topics: dict[str, set[str]], orphaned: set[tuple[str, str]]) -> list[OrphanFinding]:
        """Full flags of subscriptions that are gone; those of orphaned queues are removed with their queue."""
        return [
            OrphanFinding("flag", self._tree.registration(topic, name), "its subscription is gone")
            for topic, names in topics.items()
            for name in sorted(names)
            if name.endswith(FULL_MARK)
            and subscription_of(owner := name.removesuffix(FULL_MARK)) not in names
            and (owner, topic) not in orphaned
        ]

    def _bodies(self, clients: set[str]) -> list[OrphanFinding]:
        """Bodies that no queue names, of producers that are not there to free them; and empty parents of bodies."""
        tree, session = self._tree, self._session
        absent = [name for name in children_of(self._session, tree.bodies) if name not in clients]
        states = self._ask(absent, lambda name: session.get_async(tree.producer(name)))
        absent = [name for name in absent if name not in states or _owner(states[name][0]) not in clients]
        kept = self._ask(absent, lambda name: session.children_async(tree.bodies_of(name)))
        found = [
            OrphanFinding("empty", tree.bodies_of(name), "has no bodies, and its producer is gone")
            for name, (numbers, _) in kept.items()
            if not numbers and name not in states
        ]
        if any(numbers for numbers, _ in kept.values()):
            named = names_in(session, all_queues(session, tree))
            found += [
                OrphanFinding("body", f"{tree.bodies_of(name)}/{number}", "no queue needs it, and its producer is gone")
                for name, (numbers, _) in kept.items()
                for number in sorted(numbers)
                if not (number.isascii() and number.isdigit() and (name, int(number)) in named)
            ]
        return found

    def _producers(self, clients: set[str]) -> list[OrphanFinding]:
        found = []
        names = [name for name in children_of(self._session, self._tree.producers) if name not in clients]
        now = self._wall_clock()
        for name, (data, stat) in self._ask(names, lambda n: self._session.get_async(self._tree.producer(n))).items():
            owner = _owner(data)
            idle = now - stat.mtime / 1000
            # A named producer keeps its numbers across restarts: only nodes named after their client are collected.
            if owner == name and idle >= self._producer_idle:
                reason = f"client {owner} is gone, silent for {idle:.0f} s"
                found.append(OrphanFinding("producer", self._tree.producer(name), reason, version=stat.version))
        return found

    # -- reading -------------------------------------------------------------------------------------------------

    def _ask(self, things: Iterable[A], ask: Callable[[A], Future[B]], unreadable: set[A] | None = None) -> dict[A, B]:
        """Pipelined answers; what is gone or cannot be read is left out, the latter noted in `unreadable`."""

        def failed(thing: A, error: StoreError) -> None:
            if isinstance(error, ConnectionLost):
                raise error
            log.warning("left alone, since it cannot be read: %s", error)
            if unreadable is not None:
                unreadable.add(thing)

        return read_many(self._session, things, ask, failed)


def _owner(data: bytes) -> str:
    state = decode_or_none(data, ProducerState)
    return "" if state is None else state.owner
