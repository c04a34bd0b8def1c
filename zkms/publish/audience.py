"""Who gets what is published to a topic, and at which epochs: one getChildren reply, kept until its watch fires.

A topic's own subscribers, and those of the patterns that stand for it. The patterns are listed in the data of
`subscribers`, whose version tells whether one came or went; each has an epoch like any topic.

A snapshot may be stale at any moment. That is safe, because a publish carries the snapshot's epoch into its transaction
and is refused if a subscription came or went meanwhile. One that only vanishes, with its session, moves no epoch, so
snapshots of one epoch may differ: a publisher never goes back to an older one, or the vanished subscription would get
a later message without the earlier ones.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from zkms.errors import NodeMissing, Unauthorised
from zkms.names import FULL_MARK, is_pattern, matches
from zkms.security import masked
from zkms.tree.paths import Tree
from zkms.tree.records import Patterns, Registration, decode
from zkms.zookeeper.session import AclPolicy, Session

log = logging.getLogger("zkms.membership")
MAX_TOPICS = 10_000


class Member(msgspec.Struct, frozen=True):
    """One subscription of a topic; `full` ones are over their limit and skipped by publishers."""

    subscription: str
    registration: Registration
    full: bool = False
    topic: str = ""
    """Where it is registered: the topic, or a pattern that stands for it."""
    acl: tuple[bytes, ...] = ()
    """Of what is stored for it alone, in a tree with a policy: see tree/acl.py."""

    @property
    def live(self) -> bool:
        """Whether it goes with its session."""
        return self.registration.kind == "live"


class Members(msgspec.Struct):
    """A topic's subscriptions at `epoch`, which is -1 for a topic that nobody ever subscribed to."""

    epoch: int
    members: tuple[Member, ...] = ()
    patterns: tuple[tuple[str, int], ...] = ()
    """Those that stand for the topic, and their epochs."""
    roll: int = -1
    """The version of the list of patterns."""
    stale: bool = False
    ticket: int = 0
    """Ascending in the order of asking, which is that of the answers."""

    def epoch_of(self, topic: str) -> int:
        """That of the topic itself, or of a pattern that stands for it."""
        return next((epoch for pattern, epoch in self.patterns if pattern == topic), self.epoch)


class Audience:
    """Snapshots by topic, at most `MAX_TOPICS` of them. Thread-safe.

    What they were read from is watched under one name for each topic: a list that is read again and again without a
    change, as that of patterns is, has one watch and not one for each time, which would keep all snapshots for ever.
    """

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree
        self._known: OrderedDict[str, Members] = OrderedDict()
        self._reading: list[tuple[str, Members]] = []
        """Snapshots under way: what changes meanwhile makes them old before they are known."""
        self._tickets = itertools.count(1)
        self._lock = threading.Lock()

    def get(self, topic: str, deadline: float | None = None) -> Members:
        """The newest snapshot at hand, read if there is none."""
        with self._lock:
            known = self._known.get(topic)
            if known is not None and not known.stale:
                self._known.move_to_end(topic)
                return known
        return self.refresh(topic, deadline)

    def forget(self, topic: str) -> None:
        """The snapshot was refused: read again next time."""
        with self._lock:
            if topic in self._known:
                self._known[topic].stale = True

    def is_newest(self, topic: str, snapshot: Members) -> bool:
        """Whether nobody has read a newer one since."""
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
                if epoch < 0:  # on the list by mistake: whoever makes its znode writes the list again
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
        """Who subscribes to a topic or pattern has changed, or the list of patterns if it is ""."""
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
        # A live one's id is never used again, so its registration, once read, does not change.
        registrations = {m.subscription: m.registration for m in before.members if m.live} if before else {}
        paths = {name: self._tree.registration(topic, name) for name in wanted if name not in registrations}
        replies = {name: self._session.get_async(path) for name, path in paths.items()}
        for name, reply in replies.items():
            again = partial(self._session.get_async, paths[name])
            try:
                data, _ = self._session.answer(reply, again, deadline=deadline)
                registrations[name] = decode(data, Registration)
            except NodeMissing:
                continue  # left between the two reads; the epoch tells
            except (msgspec.MsgspecError, Unauthorised) as error:
                log.warning("%s is not a registration of ours, ignored: %s", paths[name], error)
        members = (Member(n, registrations[n], n in flagged, topic) for n in wanted if n in registrations)
        rights = self._session.rights
        return tuple(members) if rights is None else tuple(_protected(members, rights))


@dataclass(frozen=True, slots=True)
class _Expiry:
    """A watch; those of the same topic are one, as ZooKeeper counts them."""

    membership: Audience
    topic: str

    def __call__(self) -> None:
        self.membership.expire(self.topic)


def _protected(members: Iterable[Member], rights: AclPolicy) -> Iterator[Member]:
    """Those that belong to a subscriber, with what keeps the others out."""
    for member in members:
        owner = member.registration.owner
        if rights.accepts(owner):
            yield msgspec.structs.replace(member, acl=rights.readers(owner))
        else:
            said = ", ".join(map(masked, owner)) or "nobody"
            log.warning("%s of %s gets nothing: %s is no subscriber", member.subscription, member.topic, said)


def patterns_in(data: bytes) -> tuple[str, ...]:
    """The patterns that somebody subscribes to, as the data of `subscribers` lists them."""
    if not data:
        return ()
    try:
        # One that is listed twice, or a topic itself, would get everything twice.
        return tuple(dict.fromkeys(filter(is_pattern, decode(data, Patterns).patterns)))
    except msgspec.MsgspecError:
        log.error("the list of topic patterns was overwritten by another program: patterns get nothing")
        return ()
