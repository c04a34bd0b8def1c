"""A summary of the whole tree with rates of change, computed from two reads: the data of `zkms top`."""

from __future__ import annotations

import time

import msgspec

from zkms.admin.dead_letters import DeadLetters
from zkms.admin.discovery import Discovery
from zkms.admin.groups import GroupInfo, Groups, MemberInfo
from zkms.admin.lag import BUDGET
from zkms.tree.paths import Tree, subscription_of
from zkms.tree.records import ProducerState, decode_or_none
from zkms.zookeeper.recipes import children_of, read_many
from zkms.zookeeper.session import Session

LISTED = BUDGET // 5
"""The most entries listed by one look: fewer than usual, because looks are frequent."""
MAX_PRODUCERS = 1_000


class Growth(msgspec.Struct):
    """Counters at one look; they only grow."""

    at: float
    published: dict[str, int] = {}
    """By producer: the number of its last message."""
    stored: dict[tuple[str, str], int] = {}
    """By subscription and topic: entries ever stored, all partitions together."""
    removed: dict[tuple[str, str], int] = {}
    handled: dict[tuple[str, str, str], int] = {}
    """By group, topic and client: messages acked."""


class TopicRow(msgspec.Struct, frozen=True):
    """A topic. Rates are entries a second; an entry holds one or more messages."""

    topic: str
    subscriptions: int
    live: int
    kept: int
    """Durable subscriptions and groups."""
    entries: int
    """Entries in all its queues."""
    dead: int
    stored_per_second: float | None


class GroupRow(msgspec.Struct, frozen=True):
    """A durable subscription or a group, with its rates in entries a second."""

    info: GroupInfo
    stored_per_second: float | None
    removed_per_second: float | None
    handled_per_second: dict[str, float]
    """Messages, by member."""


class Overview(msgspec.Struct, frozen=True):
    """The whole tree. Rates are None at the first look."""

    at: float
    clients: int
    entries: int
    """Entries in all queues."""
    dead: int
    published_per_second: float | None
    """Messages, by all producers."""
    topics: list[TopicRow]
    groups: list[GroupRow]


class TreeWatcher:
    """Reads the tree repeatedly, and computes rates from the growth since the last look. Used by one thread."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree
        self._discovery = Discovery(session, tree)
        self._groups = Groups(session, tree)
        self._dead_letters = DeadLetters(session, tree)
        self._before: Growth | None = None

    def look(self) -> Overview:
        """Return the state of the tree, with the rates since the last look."""
        queues = self._discovery.queues()
        topics = self._discovery.topics()
        clients = len(children_of(self._session, self._tree.clients))
        groups = self._groups.look(budget=LISTED)
        dead = self._dead_letters.counts()
        now = Growth(time.monotonic(), self._published())
        entries: dict[str, int] = {}
        kinds: dict[str, list[str]] = {}
        for queue in queues:
            entries[queue.topic] = entries.get(queue.topic, 0) + queue.entries
            place = (subscription_of(queue.subscription), queue.topic)
            if queue.registered and place not in now.stored:
                kinds.setdefault(queue.topic, []).append(queue.kind)
            now.stored[place] = now.stored.get(place, 0) + queue.stored
            now.removed[place] = now.removed.get(place, 0) + queue.removed
        for group in groups:
            for member in group.members:
                now.handled[group.name, group.topic, member.client] = member.handled
        rates = _Rates(self._before, now)
        self._before = now
        return Overview(
            at=time.time(),
            clients=clients,
            entries=sum(entries.values()),
            dead=sum(dead.values()),
            published_per_second=rates.published(),
            topics=[
                TopicRow(
                    topic.topic,
                    topic.subscriptions,
                    kinds.get(topic.topic, []).count("live"),
                    sum(kind in ("durable", "group") for kind in kinds.get(topic.topic, [])),
                    entries.get(topic.topic, 0),
                    sum(count for (_, of), count in dead.items() if of == topic.topic),
                    rates.topic(topic.topic),
                )
                for topic in topics
            ],
            groups=[rates.group(group) for group in groups],
        )

    def _published(self) -> dict[str, int]:
        session, tree = self._session, self._tree
        names = children_of(session, tree.producers)[:MAX_PRODUCERS]
        found = {}
        for name, (data, _) in read_many(session, names, lambda name: session.get_async(tree.producer(name))).items():
            state = decode_or_none(data, ProducerState)
            if state is not None:  # else another program wrote it
                found[name] = state.seq
        return found


class _Rates:
    """The growth per second between two looks; what is new has grown from 0."""

    def __init__(self, before: Growth | None, now: Growth) -> None:
        self._before = before
        self._now = now
        self._seconds = max(0.001, now.at - before.at) if before is not None else 0.0

    def published(self) -> float | None:
        """Return the rate of messages of all remaining producers."""
        if self._before is None:
            return None
        grown = (max(0, seq - self._before.published.get(name, 0)) for name, seq in self._now.published.items())
        return sum(grown) / self._seconds

    def topic(self, topic: str) -> float | None:
        """Return the rate of entries of the subscription that got most: without a selector, each gets all."""
        if self._before is None:
            return None
        known = self._before.stored
        grown = (max(0, n - known.get(place, 0)) for place, n in self._now.stored.items() if place[1] == topic)
        return max(grown, default=0) / self._seconds

    def group(self, group: GroupInfo) -> GroupRow:
        """Return the rates of entries stored and removed, and of messages by member."""
        if self._before is None:
            return GroupRow(group, None, None, {})
        place = group.name, group.topic
        stored = max(0, self._now.stored.get(place, 0) - self._before.stored.get(place, 0))
        removed = max(0, self._now.removed.get(place, 0) - self._before.removed.get(place, 0))
        handled = {member.client: self._member(group, member) for member in group.members}
        return GroupRow(group, stored / self._seconds, removed / self._seconds, handled)

    def _member(self, group: GroupInfo, member: MemberInfo) -> float:
        before = self._before.handled if self._before is not None else {}
        place = group.name, group.topic, member.client
        return max(0, member.handled - before.get(place, 0)) / self._seconds
