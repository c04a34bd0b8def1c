"""Registers this process and its subscriptions, and does so again after ZooKeeper has expired the session.

Subscribing is one transaction: the queue, the ephemeral registration, the topic's epoch. Registering again after an
expiry adds a gap entry to the queue in the same transaction: what stood in the queue before is delivered before the gap
is announced, what comes after it afterwards. A queue that the cleaner has condemned meanwhile is not used again; the
subscription gets a new one.

Thread: `zkms-registration` wakes when the session changes, and may wait for ZooKeeper.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from zkms.errors import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    NodeMissing,
    NotEmpty,
    TransactionFailed,
    ZkmsError,
)
from zkms.tree.entry import entry_prefix
from zkms.tree.paths import Tree
from zkms.tree.records import ClientState, GapRecord, QueueState, Registration, decode, encode
from zkms.version import __version__
from zkms.zookeeper.deletion import delete_queue
from zkms.zookeeper.operations import Create, Delete, Operation, SetData
from zkms.zookeeper.recipes import count_created
from zkms.zookeeper.session import Session, State, failed_with

log = logging.getLogger("zkms.subscribe")
EXPIRED = "the session expired: messages published until it was renewed did not come here"
REMOVED = "the queue was removed by somebody else"
WORN_OUT = "the queue had no numbers left, and was never empty"
LOOK_AGAIN = 0.5
"""Seconds until what could not be done is tried again."""
TOO_WORN = 100_000_000
"""Numbers left of ZooKeeper's at which a queue is replaced whether it is empty or not."""


class Registrable(Protocol):
    """What has to be known of a subscription to register it."""

    topic: str
    id: str
    registration: Registration

    def moved(self, id: str) -> None:
        """Its queue is a new one from now on, with this subscription id."""
        ...


class LiveRegistration:
    """Keeps one client's ephemerals in step with its session. Thread-safe."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        client_id: str,
        prepare: Callable[[], None],
        make_topic: Callable[[str], None],
    ) -> None:
        self._session = session
        self._tree = tree
        self._client_id = client_id
        self._prepare = prepare
        """Makes the tree if a ZooKeeper has lost it along with our session."""
        self._make_topic = make_topic
        self._started = time.time()
        self._ids = itertools.count(1)
        self._lock = threading.RLock()
        self._subscriptions: list[Registrable] = []
        self._repairs: list[Registrable] = []
        self._worn: list[Registrable] = []
        self._leaving: list[tuple[str, str]] = []
        """Topics and ids of subscriptions that were given up while ZooKeeper did not answer."""
        self._members: dict[str, object] = {}
        """By their znodes: who is there to read a durable subscription or a group."""
        self._resigned: set[str] = set()
        """Znodes of members that are none any more, where they may be left."""
        self._moving: dict[Registrable, str] = {}
        """New ids, until their registration is known to stand."""
        self._generation = 0
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="zkms-registration", daemon=True)

    def start(self) -> None:
        """Show this process under clients/, and keep it there."""
        self._generation = self._session.generation
        self._show_client()
        self._session.listen(self._wake.set)
        self._thread.start()
        self._wake.set()  # the session may have been renewed since

    def close(self) -> None:
        """Register nothing more; the session's end removes the ephemerals."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def new_id(self) -> str:
        """An id for a subscription of this client, never used before: what is registered under an id never changes."""
        number = next(self._ids)
        return self._client_id if number == 1 else f"{self._client_id}~{number}"

    def subscribe(self, subscription: Registrable) -> None:
        """Register; when this returns, every publish that begins reaches the queue."""
        with self._lock:
            try:
                self._register(subscription, None)
            except ConnectionLost:  # it may have been carried out all the same
                self._leaving.append((subscription.topic, self._moving.pop(subscription, subscription.id)))
                self._wake.set()
                raise
            self._subscriptions.append(subscription)

    def unsubscribe(self, subscription: Registrable) -> None:
        """Take the registration away, then the queue with all that is in it; if ZooKeeper is away, when it is back."""
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
        try:
            self._leave(subscription.topic, subscription.id)
        except ConnectionLost:
            # As long as the session lives, publishers would fill a queue that nobody reads.
            self._leaving.append((subscription.topic, subscription.id))
            self._wake.set()
            raise

    def remove_member(self, member: str, who: object) -> None:
        """Take a member's znode away, now if ZooKeeper answers, else when it is back; not if another has it by now.

        As long as the session lives, a member that does not read would be waited for by all others.
        """
        with self._lock:
            if self._members.get(member) is not who:
                return
            del self._members[member]
            self._resigned.add(member)
            if self._session.state is State.CONNECTED:
                try:
                    self._take_away(member)
                except ConnectionLost as error:
                    log.info("%s is taken away later: %s", member, error)
                    self._wake_in(LOOK_AGAIN)

    def add_member(self, member: str, who: object) -> None:
        """It is a member, perhaps again; until it resigns."""
        with self._lock:
            self._members[member] = who
            self._resigned.discard(member)

    def _take_away(self, member: str) -> None:
        try:
            stat = self._session.exists(member)
            if stat is not None and stat.ephemeralOwner == self._session_id():
                self._session.multi([Delete(member)])
        except ConnectionLost:
            raise
        except ZkmsError as error:
            if not failed_with(error, NodeMissing):
                log.warning("%s cannot be taken away, and stays until the session ends: %s", member, error)
        self._resigned.discard(member)

    def _leave(self, topic: str, subscription_id: str) -> None:
        queue = self._tree.queue(subscription_id, topic)
        writes = [
            SetData(queue, encode(QueueState(self._client_id, gone="unsubscribed"))),
            SetData(self._tree.topic(topic), b""),
        ]
        deadline = time.monotonic() + self._session.config.request_timeout
        while True:
            marks = (self._tree.registration(topic, subscription_id), self._tree.full_flag(topic, subscription_id))
            operations: list[Operation] = [Delete(path) for path in marks if self._session.exists(path) is not None]
            operations += writes
            try:
                if operations:
                    self._session.multi(operations)
                break
            except TransactionFailed as error:
                if not failed_with(error, NodeMissing):
                    raise error.cause from error
                # Somebody removed the queue or the topic: the registration has to go all the same.
                writes = [write for write in writes if write is not error.operation]
            except ConnectionLost:
                if time.monotonic() >= deadline:
                    raise
        delete_queue(self._session, queue)

    def repair(self, subscription: Registrable) -> None:
        """Its queue has vanished: register again, soon. Never blocks."""
        if subscription not in self._repairs:
            self._repairs.append(subscription)
        self._wake.set()

    def renumber(self, subscription: Registrable) -> None:
        """Its queue's numbers come to their end: replace it, as soon as it is empty. Never blocks."""
        if subscription not in self._worn:
            self._worn.append(subscription)
            self._wake.set()

    def _replace(self, subscription: Registrable) -> bool:
        """Give a subscription a new queue in one transaction that needs the old one to be empty; False if it is not.

        So nothing is missed, and no gap is announced. Where it is never empty, and the numbers are nearly used up, what
        is in it is given up: that is a gap.
        """
        topic, old, new = subscription.topic, subscription.id, self._moving.get(subscription) or self.new_id()
        queue = self._tree.queue(old, topic)
        stat = self._session.exists(queue)
        if stat is None:
            return True  # gone, which repair() sees to: also if an attempt of ours whose answer was lost has done it
        if self._session.exists(self._tree.full_flag(topic, old)) is not None:
            return False  # not empty, or about to be cleared
        operations: list[Operation] = [
            Delete(queue),
            Delete(self._tree.subscription(old)),
            Delete(self._tree.registration(topic, old)),
            *self._make_queue(new, self._tree.queue(new, topic)),
            Create(self._tree.registration(topic, new), encode(subscription.registration), ephemeral=True),
            SetData(self._tree.topic(topic), b""),
        ]
        self._moving[subscription] = new
        try:
            self._session.multi(operations)
        except TransactionFailed as error:
            if failed_with(error, NotEmpty):
                del self._moving[subscription]
                left = 2**31 - count_created(stat)
                if left > TOO_WORN:
                    return False
                self._moving[subscription] = new
                self._register(subscription, WORN_OUT)
                return True
            del self._moving[subscription]
            raise error.cause from error
        log.info("%r has a new queue, %s, since the numbers of %s come to their end", topic, new, old)
        del self._moving[subscription]
        subscription.moved(new)
        return True

    # -- the transaction -----------------------------------------------------------------------------------------

    def _register(self, subscription: Registrable, gap: str | None) -> None:
        """Register, unless that is done; `gap` is announced if it has to be done again."""
        deadline = time.monotonic() + self._session.config.request_timeout
        topic = subscription.topic
        tried = False
        while True:
            own = self._moving.get(subscription, subscription.id)
            path = self._tree.registration(topic, own)
            queue = self._tree.queue(own, topic)
            state = self._queue_state(queue)
            stat = self._session.exists(path)
            if state is None and stat is not None:  # one transaction makes both: perhaps just now
                state = self._queue_state(queue)
            mine = stat is not None and state is not None and stat.ephemeralOwner == self._session_id()
            if gap is None and not (tried and mine) and (stat is not None or state is not None):
                # Of a process with the same client_id; or of an attempt whose session has ended since, and then
                # what was published before the next one would be missing in the middle of what is in it.
                subscription.id, tried = self.new_id(), False
                continue
            vanished = state is None and gap is not None and own == subscription.id
            if vanished or (state is not None and state[0].gone):
                # Not made again under its id: late acks of what was in it would hit its successor's entries.
                self._moving[subscription] = self.new_id()
                continue
            if mine:
                break  # also the end of an attempt whose answer was lost
            operations: list[Operation] = []
            if state is None:
                operations += self._make_queue(own, queue)
            else:  # at its version: a cleaner that condemns it now fails, or we do
                operations.append(SetData(queue, encode(state[0]), state[1]))
            former = path if own == subscription.id else self._tree.registration(topic, subscription.id)
            if self._session.exists(former) is not None:  # of our former session, or of the queue that vanished
                operations.append(Delete(former))
            operations.append(Create(path, encode(subscription.registration), ephemeral=True))
            if gap is not None:
                data = encode(GapRecord(gap))
                operations.append(Create(f"{queue}/{entry_prefix(0, len(data), gap=True)}", data, sequence=True))
            operations.append(SetData(self._tree.topic(topic), b""))
            try:
                self._session.multi(operations)
                break
            except TransactionFailed as error:
                if not isinstance(error.cause, (NodeMissing, NodeExists, BadVersion)):
                    raise error.cause from error
                if time.monotonic() >= deadline:
                    raise
                self._make_topic(topic)
            except ConnectionLost:
                tried = True
                if time.monotonic() >= deadline:
                    raise
        if self._moving.pop(subscription, None) is not None:
            subscription.moved(own)

    def _queue_state(self, queue: str) -> tuple[QueueState, int] | None:
        try:
            data, stat = self._session.get(queue)
        except NodeMissing:
            return None
        try:
            return decode(data, QueueState), stat.version
        except msgspec.MsgspecError:
            log.warning("%s was overwritten by another program: restored", queue)
            return QueueState(self._client_id), stat.version

    def _make_queue(self, subscription_id: str, queue: str) -> list[Operation]:
        parent = self._tree.subscription(subscription_id)
        operations: list[Operation] = [] if self._session.exists(parent) is not None else [Create(parent)]
        operations.append(Create(queue, encode(QueueState(self._client_id))))
        return operations

    def _session_id(self) -> int:
        client_id = self._session.client_id
        return client_id[0] if client_id is not None else 0

    def _show_client(self) -> None:
        path = self._tree.client(self._client_id)
        state = encode(ClientState(socket.gethostname(), os.getpid(), __version__, self._started))
        deadline = time.monotonic() + self._session.config.request_timeout
        while True:
            stat = self._session.exists(path)
            if stat is not None and stat.ephemeralOwner == self._session_id():
                return
            operations: list[Operation] = [Delete(path)] if stat is not None else []
            operations.append(Create(path, state, ephemeral=True))
            try:
                self._session.multi(operations)
                return
            except TransactionFailed as error:
                if not isinstance(error.cause, (NodeMissing, NodeExists)):
                    raise error.cause from error
            except ConnectionLost as error:
                if not error.outcome_unknown or time.monotonic() >= deadline:
                    raise

    # -- after an expiry -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait()
            self._wake.clear()
            if self._closed or self._session.state is not State.CONNECTED:
                continue
            try:
                self._renew()
            except ZkmsError as error:
                if not self._closed:
                    log.warning("could not register again, trying on: %s", error)
                    self._wake_in(LOOK_AGAIN)

    def _wake_in(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._wake.set)
        timer.daemon = True
        timer.start()

    def _renew(self) -> None:
        generation = self._session.generation
        with self._lock:
            for member in list(self._resigned):
                self._take_away(member)
            if generation != self._generation:
                log.warning("session renewed: registering %d subscriptions again", len(self._subscriptions))
                self._prepare()
                self._show_client()
                for subscription in self._subscriptions:
                    self._register(subscription, EXPIRED)
                self._generation = generation
            while self._repairs:
                subscription = self._repairs[-1]
                if subscription in self._subscriptions:
                    self._register(subscription, REMOVED)
                self._repairs.remove(subscription)
            self._worn = [each for each in self._worn if each in self._subscriptions and not self._replace(each)]
            if self._worn:
                self._wake_in(LOOK_AGAIN)
        while self._leaving:
            self._leave(*self._leaving[0])
            del self._leaving[0]
