"""Who and what is there: topics, subscriptions, queues and clients, with few requests and no listing of queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import msgspec

from zkms.errors import NodeMissing, StoreError
from zkms.session import Session
from zkms.tree import FULL_MARK, ClientState, QueueState, Registration, Tree, decode, subscription_of

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
    client: str
    limit: int
    full: bool


class QueueInfo(msgspec.Struct, frozen=True):
    """A queue: how many entries wait in it, and whether anybody is registered for it."""

    subscription: str
    topic: str
    entries: int
    registered: bool
    client: str
    state: str


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
                found.append(SubscriptionInfo(topic, name, r.kind, r.client, r.limit, name in flagged))
        return found

    def queues(self) -> list[QueueInfo]:
        """All queues, also those whose subscription is gone and which wait for the cleaner."""
        owners = self.names(self._tree.messages)
        listed = self.ask(owners, lambda name: self._session.children_async(self._tree.subscription(name)))
        pairs = [(owner, topic) for owner, (topics, _) in listed.items() for topic in sorted(topics)]
        read = self.ask(pairs, lambda pair: self._session.get_async(self._tree.queue(*pair)))
        known = self.ask(
            list(read), lambda p: self._session.exists_async(self._tree.registration(p[1], subscription_of(p[0])))
        )
        return [
            self._queue(pair, data, stat.numChildren, known[pair] is not None) for pair, (data, stat) in read.items()
        ]

    def _queue(self, pair: tuple[str, str], data: bytes, entries: int, registered: bool) -> QueueInfo:
        try:
            state = decode(data, QueueState)
        except msgspec.MsgspecError:
            return QueueInfo(*pair, entries, registered, "", "garbage")
        return QueueInfo(*pair, entries, registered, state.client, state.gone or "open")

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
