"""The subscriptions of a topic and its epochs, as one getChildren reply that is cached until its watch fires.

A topic has its own subscriptions, and those of the patterns that match it. The patterns are listed in the data of
`subscribers`, whose version changes with the list; each pattern has an epoch like any topic.

The publisher decides which messages of a frame go to which queues (`route`). A live or durable subscription gets every
message; one with a selector gets those whose headers match; a group gets each message in one of its partitions: that of
its key, `crc32(key) % partitions`, so that one member reads all messages of a key, in order. Messages without a key go
to the partitions in turn, a run of messages at a time.

A snapshot may be stale at any moment. That is safe: a publish checks the snapshot's epoch in its transaction, and is
refused if a subscription was added or removed meanwhile. One that ends with its session changes no epoch, so snapshots
of one epoch may differ. A publisher therefore never goes back to an older one: the ended subscription would get a later
message without the earlier ones.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from zlib import crc32

import msgspec

from zkms.errors import NodeMissing, Unauthorised
from zkms.message.frame import Packed
from zkms.names import FULL_MARK, is_pattern, matches
from zkms.security import masked
from zkms.tree.paths import Tree, queue_of
from zkms.tree.records import Patterns, Registration, decode
from zkms.zookeeper.operations import Check
from zkms.zookeeper.session import AclPolicy, Session

log = logging.getLogger("zkms.publish")
MAX_TOPICS = 10_000
RUN = 64
"""Consecutive messages of a frame without a key that go to the same partition."""


class Member(msgspec.Struct, frozen=True):
    """One subscription of a topic; publishers skip it while it is `full`."""

    subscription: str
    registration: Registration
    full: bool = False
    topic: str = ""
    """Where it is registered: the topic, or a pattern that matches it."""
    acl: tuple[bytes, ...] = ()
    """The ACL of its entries, in a tree with a policy: see tree/acl.py."""

    @property
    def live(self) -> bool:
        """Whether it ends with its session."""
        return self.registration.kind == "live"


class QueueTarget(NamedTuple):
    """A queue that gets a frame, or a part of it."""

    queue: tuple[str, str]
    """The name of the subscription or of the group's partition, and the topic or pattern."""
    member: Member
    picks: tuple[int, ...] | None = None
    """Indexes of the messages that it gets; None for all of them."""

    def name_for(self, topic: str) -> str:
        """Its name in receipts: one name may be subscribed to the topic and to a pattern that matches it."""
        name, registered = self.queue
        return name if registered == topic else f"{name} ({registered})"


class Members(msgspec.Struct):
    """A topic's subscriptions at `epoch`, which is -1 if the topic's znode does not exist."""

    epoch: int
    members: tuple[Member, ...] = ()
    patterns: tuple[tuple[str, int], ...] = ()
    """The patterns that match the topic, and their epochs."""
    roll: int = -1
    """The version of the list of patterns."""
    stale: bool = False
    ticket: int = 0
    """Ascends in the order of the reads."""
    everyone: tuple[QueueTarget, ...] | None = None
    """The targets of every frame, if each member gets all of it; None if that depends on the messages."""
    budget: tuple[int, int] | None = None
    """The most bytes and messages of a frame; computed when first needed."""
    checks: tuple[Check, ...] = ()
    """The checks of a transaction, the topic's epoch first; computed when first needed."""
    paths: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)
    """Paths of the queues that were published to."""

    def epoch_of(self, topic: str) -> int:
        """Return the epoch of the topic itself, or of a pattern that matches it."""
        return next((epoch for pattern, epoch in self.patterns if pattern == topic), self.epoch)


class Audience:
    """Snapshots by topic, at most `MAX_TOPICS` of them. Thread-safe.

    Watches of the same topic compare equal (`_Expiry`): a znode that is read again without a change, such as the list
    of patterns, keeps one watch instead of one for each read.
    """

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree
        self._known: OrderedDict[str, Members] = OrderedDict()
        self._reading: list[tuple[str, Members]] = []
        """Snapshots being read: a change meanwhile makes them stale at once."""
        self._tickets = itertools.count(1)
        self._lock = threading.Lock()

    def get(self, topic: str, deadline: float | None = None) -> Members:
        """Return the cached snapshot; read it if there is none."""
        with self._lock:
            known = self._known.get(topic)
            if known is not None and not known.stale:
                self._known.move_to_end(topic)
                return known
        return self.refresh(topic, deadline)

    def forget(self, topic: str) -> None:
        """Read the topic again next time, because its snapshot was refused."""
        with self._lock:
            if topic in self._known:
                self._known[topic].stale = True

    def is_newest(self, topic: str, snapshot: Members) -> bool:
        """Whether no newer snapshot has been read since."""
        with self._lock:
            return self._known.get(topic, snapshot).ticket <= snapshot.ticket

    def refresh(self, topic: str, deadline: float | None = None) -> Members:
        """Read the topic's subscriptions now."""
        snapshot = Members(-1, ticket=next(self._tickets))
        entry = (topic, snapshot)
        with self._lock:
            self._reading.append(entry)
        try:
            self._fill(topic, snapshot, deadline)
            snapshot.everyone = _everyone(snapshot.members)
            return self._keep(topic, snapshot)
        finally:
            with self._lock:
                self._reading.remove(entry)

    def _fill(self, topic: str, snapshot: Members, deadline: float | None) -> None:
        data, stat = self._session.get(self._tree.subscribers, _Expiry(self, ""), deadline=deadline)
        snapshot.roll = stat.version
        snapshot.epoch, snapshot.members = self._list(topic, deadline)
        for pattern in patterns_in(data):
            if matches(pattern, topic):
                epoch, members = self._list(pattern, deadline)
                if epoch < 0:  # listed without a znode: whoever creates that writes the list again
                    continue
                snapshot.patterns += ((pattern, epoch),)
                snapshot.members += members

    def _keep(self, topic: str, snapshot: Members) -> Members:
        if snapshot.epoch < 0 and not snapshot.members:
            return snapshot
        with self._lock:
            known = self._known.get(topic)
            if known is not None and known.ticket > snapshot.ticket:
                return known
            self._known[topic] = snapshot
            self._known.move_to_end(topic)
            while len(self._known) > MAX_TOPICS:
                self._known.popitem(last=False)
        return snapshot

    def expire(self, topic: str) -> None:
        """Mark the snapshots of a topic or pattern as stale; "" stands for the list of patterns, and so for all."""
        with self._lock:
            if topic and not is_pattern(topic):
                known = [(topic, self._known[topic])] if topic in self._known else []
            else:
                known = list(self._known.items())
            for each, snapshot in (*known, *self._reading):
                if not topic or each == topic or matches(topic, each):
                    snapshot.stale = True

    def _list(self, topic: str, deadline: float | None) -> tuple[int, tuple[Member, ...]]:
        try:
            names, stat = self._session.children(self._tree.topic(topic), _Expiry(self, topic), deadline=deadline)
        except NodeMissing:
            return -1, ()
        return stat.version, self._read(topic, names, deadline)

    def _read(self, topic: str, names: list[str], deadline: float | None) -> tuple[Member, ...]:
        flagged = {name.removesuffix(FULL_MARK) for name in names if name.endswith(FULL_MARK)}
        wanted = sorted(name for name in names if not name.endswith(FULL_MARK))
        with self._lock:
            before = self._known.get(topic)
        # A live subscription's id is never used again, so its registration does not change.
        registrations = {m.subscription: m.registration for m in before.members if m.live} if before else {}
        paths = {name: self._tree.registration(topic, name) for name in wanted if name not in registrations}
        replies = {name: self._session.get_async(path) for name, path in paths.items()}
        for name, reply in replies.items():
            again = partial(self._session.get_async, paths[name])
            try:
                data, _ = self._session.answer(reply, again, deadline=deadline)
                registrations[name] = decode(data, Registration)
            except NodeMissing:
                continue  # unsubscribed between the two reads; the epoch check finds that out
            except (msgspec.MsgspecError, Unauthorised) as error:
                log.warning("%s is not a registration of ours, ignored: %s", paths[name], error)
        members = (Member(n, registrations[n], n in flagged, topic) for n in wanted if n in registrations)
        rights = self._session.rights
        return tuple(members) if rights is None else tuple(_protected(members, rights))


@dataclass(frozen=True, slots=True)
class _Expiry:
    """A watch that marks a topic's snapshots as stale; those of one topic are equal, so they are one watch."""

    audience: Audience
    topic: str

    def __call__(self) -> None:
        self.audience.expire(self.topic)


def _protected(members: Iterable[Member], rights: AclPolicy) -> Iterator[Member]:
    """Return the members whose owner is a subscriber, each with its ACL."""
    for member in members:
        owner = member.registration.owner
        if rights.accepts(owner):
            yield msgspec.structs.replace(member, acl=rights.readers(owner))
        else:
            said = ", ".join(map(masked, owner)) or "nobody"
            log.warning("%s of %s gets nothing: %s is no subscriber", member.subscription, member.topic, said)


def patterns_in(data: bytes) -> tuple[str, ...]:
    """Return the patterns in the data of `subscribers`."""
    if not data:
        return ()
    try:
        # A pattern that is listed twice, or a plain topic, would get everything twice.
        return tuple(dict.fromkeys(filter(is_pattern, decode(data, Patterns).patterns)))
    except msgspec.MsgspecError:
        log.error("the list of topic patterns was overwritten by another program: patterns get nothing")
        return ()


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of all messages with this key."""
    return crc32(key.encode()) % partitions


def route(members: Sequence[Member], packed: Sequence[Packed], turn: int, without: frozenset[int]) -> list[QueueTarget]:
    """Return the queues and the messages that each gets.

    `turn` chooses the first partition for messages without a key; `without` are indexes of messages to leave out.
    """
    targets = []
    everything = [place for place in range(len(packed)) if place not in without] if without else range(len(packed))
    for member in members:
        registration = member.registration
        wanted = everything
        if registration.where is not None:
            wanted = [place for place in everything if fits(packed[place].headers, registration.where)]
        if registration.kind == "group":
            targets += _spread(member, packed, wanted, turn)
        elif wanted:
            targets.append(QueueTarget((member.subscription, member.topic), member, _picks(wanted, packed)))
    return targets


def _everyone(members: Sequence[Member]) -> tuple[QueueTarget, ...] | None:
    """Return the targets if each member gets all of every frame: none is full, has a selector or is a group."""
    if any(m.full or m.registration.where is not None or m.registration.kind == "group" for m in members):
        return None
    return tuple(QueueTarget((member.subscription, member.topic), member) for member in members)


def _picks(places: Sequence[int], packed: Sequence[Packed]) -> tuple[int, ...] | None:
    return None if len(places) == len(packed) else tuple(places)


def _spread(member: Member, packed: Sequence[Packed], places: Sequence[int], turn: int) -> list[QueueTarget]:
    partitions = member.registration.partitions
    shares: dict[int, list[int]] = {}
    loose = 0
    for place in places:
        key = packed[place].key
        if key is None:
            number = (turn + loose // RUN) % partitions
            loose += 1
        else:
            number = partition_of(key, partitions)
        shares.setdefault(number, []).append(place)
    return [
        QueueTarget((queue_of(member.subscription, number), member.topic), member, _picks(share, packed))
        for number, share in sorted(shares.items())
    ]


def fits(headers: dict[str, str] | None, where: dict[str, list[str]]) -> bool:
    """Whether the headers have one of the selected values for each selected name."""
    return headers is not None and all(headers.get(name) in values for name, values in where.items())
