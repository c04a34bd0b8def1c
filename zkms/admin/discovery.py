"""Who and what is there: topics, subscriptions, queues and clients, with few requests and no listing of queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import msgspec

from zkms.admin.lag import QueueKey, flow
from zkms.errors import NodeMissing, StoreError
from zkms.names import FULL_MARK, PARTITION_MARK
from zkms.tree.paths import Tree, subscription_of
from zkms.tree.records import ClientState, QueueState, Registration, decode
from zkms.zookeeper.session import Session, Stat

A = TypeVar("A")
B = TypeVar("B")
WINDOW = 128
"""Requests in flight at the most."""


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic and how many subscribe to it."""

    topic: str
    subscriptions: int


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """Who subscribes to a topic; `full` while publishers skip it."""

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
    """A queue: how many entries wait in it, and whether anybody is registered for it.

    What is None was not asked for, or is not known because the queue is too long to be listed.
    """

    subscription: str
    """Of a group: GROUP#PARTITION."""
    topic: str
    entries: int
    registered: bool
    client: str
    state: str
    kind: str = ""
    """live, durable or group; empty if nobody is registered."""
    partition: int | None = None
    stored: int = 0
    """Entries that were ever put there."""
    removed: int = 0
    messages: int | None = None
    """Messages that wait, in whatever state."""
    delayed: int | None = None
    """Those that have failed and wait for another attempt."""
    ready: int | None = None
    reserved: int | None = None
    """Those in a reader's hands, as it said last: up to a second ago."""
    dead: int | None = None
    """Dead letters of the subscription: its partitions share them."""
    age: float | None = None
    """Seconds for which the oldest entry has waited."""


class ClientInfo(msgspec.Struct, frozen=True):
    """A connected process."""

    client: str
    host: str
    pid: int
    version: str
    started: float


class Discovery:
    """Reads the tree as it is now."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree

    def topics(self) -> list[TopicInfo]:
        """All topics that anybody ever subscribed to and that were not removed since."""
        names = self.names(self._tree.subscribers)
        listed = self.ask(names, lambda name: self._session.children_async(self._tree.topic(name)))
        return [
            TopicInfo(name, sum(not child.endswith(FULL_MARK) for child in children))
            for name, (children, _) in listed.items()
        ]

    def subscriptions(self, topic: str) -> list[SubscriptionInfo]:
        """The topic's subscriptions; none for a topic that does not exist."""
        names = self.names(self._tree.topic(topic))
        flagged = {name.removesuffix(FULL_MARK) for name in names if name.endswith(FULL_MARK)}
        plain = [name for name in names if not name.endswith(FULL_MARK)]
        found = []
        paths = self.ask(plain, lambda name: self._session.get_async(self._tree.registration(topic, name)))
        for name, (data, _) in paths.items():
            try:
                r = decode(data, Registration)
            except msgspec.MsgspecError:
                found.append(SubscriptionInfo(topic, name, "garbage", "", 0, name in flagged))
            else:
                more = (r.partitions, r.max_bytes, r.overflow, r.max_age)
                found.append(SubscriptionInfo(topic, name, r.kind, r.client, r.limit, name in flagged, *more))
        return found

    def queues(self) -> list[QueueInfo]:
        """All queues, also those whose subscription is gone and which wait for the cleaner."""
        owners = self.names(self._tree.messages)
        listed = self.ask(owners, lambda name: self._session.children_async(self._tree.subscription(name)))
        pairs = [(owner, topic) for owner, (topics, _) in listed.items() for topic in sorted(topics)]
        read = self.ask(pairs, lambda pair: self._session.get_async(self._tree.queue(*pair)))
        owners_of = {(topic, subscription_of(lane)) for lane, topic in read}
        known = self.ask(owners_of, lambda pair: self._session.get_async(self._tree.registration(*pair)))
        return [
            _queue(lane, topic, data, stat, known.get((topic, subscription_of(lane))))
            for (lane, topic), (data, stat) in read.items()
        ]

    def clients(self) -> list[ClientInfo]:
        """The connected processes."""
        found = []
        names = self.names(self._tree.clients)
        for name, (data, _) in self.ask(names, lambda n: self._session.get_async(self._tree.client(n))).items():
            try:
                state = decode(data, ClientState)
            except msgspec.MsgspecError:
                found.append(ClientInfo(name, "?", 0, "?", 0.0))
            else:
                found.append(ClientInfo(name, state.host, state.pid, state.version, state.started))
        return found

    def list_queues(self, lanes: Iterable[QueueKey]) -> dict[QueueKey, list[str]]:
        """The names of the entries in each queue."""
        listed = self.ask(lanes, lambda lane: self._session.children_async(self._tree.queue(*lane)))
        return {lane: names for lane, (names, _) in listed.items()}

    def look_at_entries(self, entries: Iterable[tuple[QueueKey, str]]) -> dict[tuple[QueueKey, str], Stat]:
        """The stat of each entry, in this order; those acked meanwhile are left out."""
        stats = self.ask(entries, lambda entry: self._session.exists_async(f"{self._tree.queue(*entry[0])}/{entry[1]}"))
        return {entry: stat for entry, stat in stats.items() if stat is not None}

    def names(self, path: str) -> list[str]:
        """The children of a znode, sorted; none if it does not exist."""
        try:
            return sorted(self._session.children(path)[0])
        except NodeMissing:
            return []

    def ask(
        self,
        things: Iterable[A],
        ask: Callable[[A], Future[B]],
        failed: Callable[[A, StoreError], None] | None = None,
    ) -> dict[A, B]:
        """One pipelined request for each; those gone meanwhile are left out, as are those that go to `failed`."""
        answers = {}
        pending = [*things]
        for start in range(0, len(pending), WINDOW):
            replies = [(thing, ask(thing)) for thing in pending[start : start + WINDOW]]
            for thing, reply in replies:
                try:
                    answers[thing] = self._session.answer(reply, partial(ask, thing))
                except NodeMissing:
                    continue
                except StoreError as error:
                    if failed is None:
                        raise
                    failed(thing, error)
        return answers


def _queue(lane: str, topic: str, data: bytes, stat: Stat, known: tuple[bytes, Stat] | None) -> QueueInfo:
    try:
        kind: str = "" if known is None else decode(known[0], Registration).kind
    except msgspec.MsgspecError:
        kind = "garbage"
    try:
        state = decode(data, QueueState)
        client, said = state.client, state.gone or "open"
    except msgspec.MsgspecError:
        client, said = "", "garbage"
    number = lane.partition(PARTITION_MARK)[2]
    partition = int(number) if kind == "group" and number.isdecimal() else None
    return QueueInfo(lane, topic, stat.numChildren, known is not None, client, said, kind, partition, *flow(stat))
