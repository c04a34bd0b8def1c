"""Reads dead letters, and requeues or purges them.

Dead letters are below dead/SUBSCRIPTION/TOPIC, together with quarantined entries: those of a queue that its reader
could not decode (see deliver/quarantine.py). These can be read and purged, but requeued only if this version of zkms
can decode them.

Requeueing is one transaction: it deletes the dead letter, creates an entry in the queue, and checks that the
subscription has not changed. So a dead letter is requeued once, even if several clients do it at the same time or a
reply is lost.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from zkms.errors import (
    BadVersion,
    CannotDecode,
    ConnectionLost,
    InvalidArgument,
    NodeMissing,
    NotSubscribed,
    QueueFull,
    StoreError,
    Unauthorised,
)
from zkms.message import frame as frames
from zkms.message.frame import Extra, Packed
from zkms.names import PARTITION_MARK
from zkms.publish.audience import partition_of
from zkms.publish.limits import MAX_ENTRIES
from zkms.publish.shipment import CARRIED_BYTES
from zkms.security import hidden, masked
from zkms.trail.event import called
from zkms.trail.hooks import Recorder
from zkms.tree.acl import acl
from zkms.tree.delayed_names import NOBODY
from zkms.tree.entry import carried, entry_prefix, parse_entry
from zkms.tree.paths import Tree, queues_of, subscription_of
from zkms.tree.records import DeadLetter, Registration, decode, overwritten, read_record
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import Check, Create, Delete
from zkms.zookeeper.recipes import attempt, grandchildren_of, read_many, stats_of
from zkms.zookeeper.session import AclPolicy, Session

DEFAULT_LIMIT = 1000
AT_ONCE = 500
_LETTER = re.compile(r"d\.1\.\d{1,9}\.(\d{10})", re.ASCII)


class DeadLetterPlace(NamedTuple):
    """The position of a dead letter in the tree."""

    queue: str
    """The subscription; for a quarantined entry, the queue below messages/ that it was in."""
    topic: str
    """The topic or pattern of the subscription."""
    name: str


class DeadLetterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A message that could not be handled, and why; or a quarantined entry, which is `foreign`."""

    id: str
    """The id of the message, or the name of the quarantined entry."""
    topic: str
    """Where it was published."""
    subscription: str
    reason: str
    error: str = ""
    """The error of the last attempt."""
    attempts: int = 0
    at: float = 0.0
    """When it became a dead letter, in seconds since the epoch."""
    key: str | None = None
    headers: dict[str, str] = {}
    data: Any = None
    """The data; with a `codec`, the encoded bytes; of a quarantined entry, its bytes."""
    codec: str | None = None
    producer: str = ""
    seq: int = 0
    published_at: float = 0.0
    foreign: bool = False
    place: DeadLetterPlace


class DeadLetters:
    """Reads, requeues and purges dead letters; the `trail` records what is requeued. Thread-safe."""

    def __init__(self, session: Session, tree: Tree, trail: Recorder | None = None) -> None:
        self.trail = trail or Recorder()
        self._session = session
        self._tree = tree

    # -- reading -------------------------------------------------------------------------------------------------

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the number of dead letters by subscription and topic, without listing them."""
        pairs = self._places(None, None)
        found: Counter[tuple[str, str]] = Counter()
        for (queue, topic), stat in stats_of(self._session, pairs, lambda pair: self._tree.dead_queue(*pair)).items():
            found[subscription_of(queue), topic] += stat.numChildren
        return found

    def find(self, topic: str | None = None, subscription: str | None = None) -> list[DeadLetterPlace]:
        """Return the positions of dead letters, the oldest of each subscription first; `topic` may be a pattern."""
        pairs = self._places(topic, subscription)
        listed = read_many(
            self._session, pairs, lambda pair: self._session.children_async(self._tree.dead_queue(*pair))
        )
        return [
            DeadLetterPlace(*pair, name) for pair, (names, _) in listed.items() for name in sorted(names, key=_order)
        ]

    def _places(self, topic: str | None, subscription: str | None) -> list[tuple[str, str]]:
        listed = grandchildren_of(
            self._session,
            self._tree.dead,
            lambda queue: subscription is None or subscription_of(queue) == subscription,
        )
        return [
            (queue, name) for queue, (topics, _) in listed.items() for name in topics if topic is None or name == topic
        ]

    def read(self, places: Sequence[DeadLetterPlace]) -> list[DeadLetterInfo]:
        """Return the dead letters at these positions, without those that were removed meanwhile."""
        read = read_many(self._session, places, lambda place: self._session.get_async(self._path(place)))
        return [_describe(place, raw, stat.ctime / 1000) for place, (raw, stat) in read.items()]

    def each(self, places: Sequence[DeadLetterPlace]) -> Iterator[DeadLetterInfo]:
        """Yield the dead letters at these positions, with at most `AT_ONCE` in memory at a time."""
        for start in range(0, len(places), AT_ONCE):
            yield from self.read(places[start : start + AT_ONCE])

    def look(
        self, topic: str | None = None, subscription: str | None = None, limit: int = DEFAULT_LIMIT
    ) -> list[DeadLetterInfo]:
        """Return the first `limit` dead letters."""
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InvalidArgument(f"limit must be a whole number of at least 1, not {limit!r:.60}")
        return self.read(self.find(topic, subscription)[:limit])

    def _path(self, place: DeadLetterPlace) -> str:
        return f"{self._tree.dead_queue(place.queue, place.topic)}/{place.name}"

    # -- requeueing and purging ----------------------------------------------------------------------------------

    def requeue(self, letter: DeadLetterInfo) -> None:
        """Put a dead letter back into its queue, as the last entry of its partition and with all its attempts.

        `NotSubscribed` if the subscription does not exist any more, `QueueFull` if it has no room, `NodeMissing` if
        another client has requeued or purged the dead letter. An expired message does not expire again.
        """
        path = self._path(_place_of(letter))
        deadline = time.monotonic() + self._session.config.request_timeout
        tried = False
        while True:
            try:
                raw, _ = self._session.get(path, deadline=deadline)
            except NodeMissing as error:
                if tried:
                    self._record(letter, None)
                    return  # an earlier try was stored, and its reply lost
                raise NodeMissing("requeued or purged by somebody else meanwhile", path=path) from error
            rights = self._session.rights
            carry = rights is None  # with a policy, more clients may read the names than the entries
            try:
                prefix, data = (
                    _quarantined_entry(letter, raw, carry=carry)
                    if letter.foreign
                    else _entry(decode(raw, DeadLetter), carry=carry)
                )
            except msgspec.MsgspecError as error:
                raise overwritten(path, error) from error
            version, name, owner = self._target(letter, deadline)
            queue = self._tree.queue(name, letter.place.topic)
            readers = () if rights is None else self._readers(letter, path, rights, owner)
            topic = Check(self._tree.topic(letter.place.topic), version)
            entry = Create(f"{queue}/{prefix}", data, sequence=True, acl=acl(readers))
            try:
                moved = attempt(self._session, [topic, Delete(path), entry], BadVersion, NodeMissing, deadline=deadline)
            except ConnectionLost as error:
                tried = tried or error.outcome_unknown
                if time.monotonic() >= deadline:
                    raise
                continue
            if moved.refused is None:
                self._record(letter, name)
                return
            if moved.refused.operation is entry and isinstance(moved.refused.cause, NodeMissing):
                raise StoreError("the subscription's queue is missing", path=queue) from moved.refused
            if time.monotonic() >= deadline:
                raise moved.refused.cause from moved.refused

    def _readers(
        self, letter: DeadLetterInfo, path: str, rights: AclPolicy, owner: tuple[str, ...]
    ) -> tuple[bytes, ...]:
        """Return the ACL of the requeued entry; `Unauthorised` if it would be readable for others than the letter.

        Subscribers can replace each other's registrations, which name the owner of a subscription.
        """
        allowed, _ = self._session.acl(path)
        if not rights.accepts(owner) or not all(each in allowed or hidden(each) in allowed for each in owner):
            others = ", ".join(map(masked, owner)) or "nobody"
            raise Unauthorised(
                f"{letter.subscription!r} of {letter.place.topic!r} belongs to {others} now, and the letter does not: "
                "it can be purged, not requeued",
                path=path,
            )
        return rights.readers(owner)

    def _record(self, letter: DeadLetterInfo, queue: str | None) -> None:
        if not letter.foreign:  # the trail does not know the messages of a quarantined entry
            kind = None if queue is None else "group" if PARTITION_MARK in queue else "durable"
            self.trail.note(
                "requeued",
                sub=called(letter.subscription, letter.place.topic),
                topic=letter.topic,
                kind=kind,
                producer=letter.producer,
                seq=letter.seq,
                n=1,
                attempt=letter.attempts,
            )

    def _target(self, letter: DeadLetterInfo, deadline: float) -> tuple[int, str, tuple[str, ...]]:
        """Return the epoch of its topic, the queue of the dead letter at that epoch, and the owner of the queue."""
        topic, subscription = letter.place.topic, letter.subscription
        if subscription == NOBODY:
            raise NotSubscribed(topic, "nobody subscribed when it was due: publish its data again, or purge the letter")
        stat = self._session.exists(self._tree.topic(topic), deadline=deadline)
        path = self._tree.registration(topic, subscription)
        try:
            registration = read_record(self._session.get(path, deadline=deadline)[0], Registration, path)
        except NodeMissing:
            stat = None
        if stat is None or registration.kind == "live":
            raise NotSubscribed(
                topic, f"nobody is registered as {subscription!r}: subscribe again, or purge the letter"
            )
        queues = queues_of(subscription, registration)
        if letter.foreign:  # the keys in its frame are unknown, so it goes back to its own queue
            if letter.place.queue not in queues:
                raise NotSubscribed(topic, f"{subscription!r} has other partitions now: it can be purged, not requeued")
            name = letter.place.queue
        else:
            name = queues[partition_of(letter.id if letter.key is None else letter.key, len(queues))]
        queue = self._session.exists(self._tree.queue(name, topic), deadline=deadline)
        if queue is not None and queue.numChildren >= min(registration.limit, MAX_ENTRIES):
            raise QueueFull(topic, subscription, f"{queue.numChildren:,} entries")
        return stat.version, name, registration.owner

    def purge(self, places: Iterable[DeadLetterPlace]) -> int:
        """Delete dead letters, and return how many they were."""
        chosen: dict[tuple[str, str], set[str]] = {}
        for place in places:
            chosen.setdefault((place.queue, place.topic), set()).add(place.name)
        return sum(
            delete_children(self._session, self._tree.dead_queue(*pair), only=names.__contains__)
            for pair, names in chosen.items()
        )

    def purge_dead(
        self, letters: Sequence[DeadLetterInfo], topic: str | None = None, subscription: str | None = None
    ) -> int:
        """Delete these dead letters; if none are given, all of the topic and the subscription."""
        if letters and (topic is not None or subscription is not None):
            raise InvalidArgument("give the letters, or topic= and subscription=, not both")
        return self.purge([_place_of(letter) for letter in letters] or self.find(topic, subscription))


def _place_of(letter: object) -> DeadLetterPlace:
    if not isinstance(letter, DeadLetterInfo):
        raise InvalidArgument(f"give what bus.dead_letters() returns, not {letter!r:.60}")
    return letter.place


def _order(name: str) -> tuple[str, str]:
    match = _LETTER.fullmatch(name)
    return (match[1] if match else "", name)


def _describe(place: DeadLetterPlace, raw: bytes, at: float) -> DeadLetterInfo:
    try:
        if _LETTER.fullmatch(place.name) is None:
            raise CannotDecode(_fault(place.name, raw))
        letter = decode(raw, DeadLetter)
        frame = frames.decode(letter.frame)
    except (CannotDecode, msgspec.MsgspecError) as error:
        return DeadLetterInfo(
            id=place.name,
            topic=place.topic,
            subscription=subscription_of(place.queue),
            reason=f"set aside: {error}",
            at=at,
            data=raw,
            foreign=True,
            place=place,
        )
    extra = (frame.extras[0] if frame.extras else None) or Extra()
    seq = frame.seq + (frame.numbers[0] if frame.numbers else 0)
    return DeadLetterInfo(
        id=extra.id if extra.id is not None else f"{frame.producer}:{seq}",
        topic=frame.topic or place.topic,
        subscription=subscription_of(place.queue),
        reason=letter.reason,
        error=letter.error,
        attempts=letter.attempts,
        at=letter.at,
        key=extra.key,
        headers=extra.headers or {},
        data=frame.data[0],
        codec=frame.codec,
        producer=frame.producer,
        seq=seq,
        published_at=frame.published_at,
        place=place,
    )


def _fault(name: str, raw: bytes) -> str:
    """Return why an entry was quarantined, as far as its bytes show."""
    entry = parse_entry(name.partition("~")[0])
    if entry.foreign:
        return "not a name that zkms gives"
    if entry.body is not None and not raw:
        return "the body it points to was missing"
    try:
        frames.decode(raw)
    except CannotDecode as error:
        return error.reason
    return "its reader could not read it"


def _entry(letter: DeadLetter, *, carry: bool) -> tuple[str, bytes]:
    """Return the name without sequence, and the data, of the entry for a dead letter."""
    frame = frames.decode(letter.frame)
    extra = frame.extras[0] if frame.extras else None
    if extra is not None and 0 < extra.expires <= time.time():
        extra = msgspec.structs.replace(extra, expires=0.0)
    data = msgspec.msgpack.encode(frame.data[0])
    packed = Packed(data, len(data), frame.codec, None if extra is None else msgspec.msgpack.encode(extra))
    whose = (frame.producer, frame.seq, frame.published_at)
    raw = frames.encode(*whose, [packed], frame.numbers, frame.topic, again=True)
    expires = 0.0 if extra is None else extra.expires
    inside = raw if carry and len(raw) <= CARRIED_BYTES else None
    return entry_prefix(1, len(raw), carried=inside, expires=math.ceil(expires)), b"" if inside else raw


def _quarantined_entry(letter: DeadLetterInfo, raw: bytes, *, carry: bool) -> tuple[str, bytes]:
    """Return the same for a quarantined entry, if this version of zkms can decode it."""
    entry = parse_entry(letter.place.name.partition("~")[0])
    frame = carried(entry.name) if entry.carrier else raw
    try:
        if entry.foreign or entry.gap:
            raise CannotDecode("not a message")
        frames.decode(frame)
    except CannotDecode as error:
        said = f"{letter.id!r:.80} is no message, {letter.reason}: it can be purged, not requeued"
        raise InvalidArgument(said) from error
    if entry.carrier and carry:
        return entry.name[:-10], b""
    return entry_prefix(entry.messages, len(frame), priority=entry.priority, expires=entry.expires), frame
