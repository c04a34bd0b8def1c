"""Reads topics, subscriptions, queues and clients with few requests; it lists no queue."""

from __future__ import annotations

import msgspec

from zkms.admin.lag import flow
from zkms.names import FULL_MARK, PARTITION_MARK
from zkms.tree.paths import Tree, subscription_of
from zkms.tree.records import ClientState, QueueState, Registration, decode_or_none
from zkms.zookeeper.recipes import children_of, grandchildren_of, read_many
from zkms.zookeeper.session import Session
from zkms.zookeeper.wire import Stat


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic and the number of its subscriptions."""

    topic: str
    subscriptions: int


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscription of a topic; `full` while publishers skip it."""

    topic: str
    subscription: str
    kind: str
    """live, durable or group; "garbage" if another program has overwritten it."""
    client: str
    limit: int
    full: bool
    partitions: int = 1
    max_bytes: int = 0
    overflow: str = ""
    max_age: float = 0.0


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue: its number of entries, and whether its subscription is registered.

    None means not requested, or unknown because the queue is too long to be listed.
    """

    subscription: str
    """The subscription; for a group, GROUP#PARTITION."""
    topic: str
    entries: int
    registered: bool
    client: str
    state: str
    kind: str = ""
    """live, durable or group; empty if it is not registered."""
    partition: int | None = None
    stored: int = 0
    """Entries ever stored in it."""
    removed: int = 0
    messages: int | None = None
    """Messages in it, in any state."""
    delayed: int | None = None
    """Messages that failed and wait for another attempt."""
    ready: int | None = None
    reserved: int | None = None
    """Messages in flight, as the reader last reported: up to a second ago."""
    dead: int | None = None
    """Dead letters of the subscription, all partitions together."""
    age: float | None = None
    """Age of the oldest entry in seconds."""


class ClientInfo(msgspec.Struct, frozen=True):
    """A connected process."""

    client: str
    host: str
    pid: int
    version: str
    started: float


class Discovery:
    """Reads the current state of the tree."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree

    def topics(self) -> list[TopicInfo]:
        """Return all topics, also those without subscriptions."""
        return [
            TopicInfo(name, sum(not child.endswith(FULL_MARK) for child in children))
            for name, (children, _) in grandchildren_of(self._session, self._tree.subscribers).items()
        ]

    def subscriptions(self, topic: str) -> list[SubscriptionInfo]:
        """Return the topic's subscriptions; none if it does not exist."""
        session, tree = self._session, self._tree
        names = children_of(session, tree.topic(topic))
        flagged = {name.removesuffix(FULL_MARK) for name in names if name.endswith(FULL_MARK)}
        plain = [name for name in names if not name.endswith(FULL_MARK)]
        read = read_many(session, plain, lambda name: session.get_async(tree.registration(topic, name)))
        found = []
        for name, (data, _) in read.items():
            r = decode_or_none(data, Registration)
            if r is None:
                found.append(SubscriptionInfo(topic, name, "garbage", "", 0, name in flagged))
            else:
                more = (r.partitions, r.max_bytes, r.overflow, r.max_age)
                found.append(SubscriptionInfo(topic, name, r.kind, r.client, r.limit, name in flagged, *more))
        return found

    def queues(self) -> list[QueueInfo]:
        """Return all queues, also those without a subscription that the cleaner will remove."""
        session, tree = self._session, self._tree
        listed = grandchildren_of(session, tree.messages)
        pairs = [(name, topic) for name, (topics, _) in listed.items() for topic in topics]
        read = read_many(session, pairs, lambda pair: session.get_async(tree.queue(*pair)))
        subscriptions = {(topic, subscription_of(name)) for name, topic in read}
        known = read_many(session, subscriptions, lambda pair: session.get_async(tree.registration(*pair)))
        return [
            _queue(name, topic, data, stat, known.get((topic, subscription_of(name))))
            for (name, topic), (data, stat) in read.items()
        ]

    def clients(self) -> list[ClientInfo]:
        """Return the connected processes."""
        session, tree = self._session, self._tree
        read = read_many(session, children_of(session, tree.clients), lambda name: session.get_async(tree.client(name)))
        found = []
        for name, (data, _) in read.items():
            state = decode_or_none(data, ClientState)
            if state is None:
                found.append(ClientInfo(name, "?", 0, "?", 0.0))
            else:
                found.append(ClientInfo(name, state.host, state.pid, state.version, state.started))
        return found


def _queue(name: str, topic: str, data: bytes, stat: Stat, known: tuple[bytes, Stat] | None) -> QueueInfo:
    registration = None if known is None else decode_or_none(known[0], Registration)
    kind = "" if known is None else "garbage" if registration is None else registration.kind
    state = decode_or_none(data, QueueState)
    client, said = ("", "garbage") if state is None else (state.client, state.gone or "open")
    number = name.partition(PARTITION_MARK)[2]
    partition = int(number) if kind == "group" and number.isdecimal() else None
    return QueueInfo(name, topic, stat.numChildren, known is not None, client, said, kind, partition, *flow(stat))
