"""Reads a durable subscription by position, for a reader that stores its position itself, such as a streaming query.

A position (`CursorPlace`) is the sequence of an entry and the index of a message in it. ZooKeeper numbers the entries
of a queue as they are stored, and never uses a number again: so the messages between two positions are always the same,
whatever was published since. `ack(place)` removes what is before that position, and nothing is removed earlier.

The cursor owns the subscription like any reader of a durable one: it is a member, has claimed the ledger, and its acks
are refused once another process claims it. A missing number was removed by another client; this is an error, or at
least a warning.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from zkms.consume.claim import Claim
from zkms.consume.dispatcher import Dispatcher
from zkms.consume.entry_state import mask_of
from zkms.consume.group_member import GroupMember
from zkms.consume.ledger_commits import Ownership, first_after
from zkms.context import Context
from zkms.errors import (
    Closed,
    ConnectionLost,
    NodeMissing,
    NotSubscribed,
    SubscriptionInUse,
    Unauthorised,
    ZkmsError,
)
from zkms.replay.cursor_trail import CursorTrail, Tell
from zkms.replay.slices import Slice
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.subscribe.live_registration import LiveRegistration
from zkms.subscribe.options import SubscribeOptions
from zkms.tree.entry import Entry, parse_entry
from zkms.tree.full_flag import FullFlag
from zkms.tree.records import GapRecord, Part, QueueState, decode, read_record
from zkms.zookeeper.operations import Operation
from zkms.zookeeper.recipes import count_created
from zkms.zookeeper.session import State

log = logging.getLogger("zkms.replay")
VERIFY_EVERY = 1.0
"""Seconds after which the ownership of the subscription is verified again."""
POLL = 0.2


class Missing(ZkmsError):
    """Messages between two positions were removed before this cursor has read them."""

    def __init__(self, topic: str, name: str, what: str) -> None:
        super().__init__(f"{name!r} of {topic!r}: {what}")
        self.topic = topic
        self.name = name


class CursorPlace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position: after all entries below `entry`, and after the first `message` messages of that entry."""

    queue: int
    """The transaction that created the queue: a new queue numbers its entries anew."""
    entry: int
    message: int = 0
    at: int = 0
    """When it was chosen, in seconds since the epoch: messages that had expired by then are always left out."""


class CursorParts(Protocol):
    """The parts of a bus that a cursor needs."""

    @property
    def context(self) -> Context: ...

    @property
    def live_registration(self) -> LiveRegistration: ...

    @property
    def durable_registration(self) -> DurableRegistration: ...


class _Listing(NamedTuple):
    """The entries of a queue at one moment."""

    made: int
    created: int
    """The number of entries ever created, which is the sequence of the next."""
    entries: list[Entry]
    numbers: list[int]
    strangers: int
    """Znodes that zkms did not create, and that took a number too."""

    def between(self, first: int, last: int) -> list[Entry]:
        """Return the entries from `first` to before `last`."""
        return self.entries[bisect_left(self.numbers, first) : bisect_left(self.numbers, last)]

    def absent(self, first: int, last: int) -> int:
        """Return how many numbers from `first` to before `last` have no entry."""
        return max(0, last - first) - len(self.between(first, last))

    def removed(self, first: int, last: int, state: QueueState) -> int:
        """Return the same without expired entries."""
        over = sum(self.absent(max(first, start), min(last, end + 1)) for start, end in state.expired)
        return max(0, self.absent(first, last) - over)


class _Done:
    """An ack for `Ownership.mark`: of a whole entry, or of this part."""

    def __init__(self, path: str, sequence: int, part: Part | None, tell: Tell | None) -> None:
        self.path = path
        self.sequence = sequence
        self._part = part
        self._tell = tell

    @property
    def complete(self) -> bool:
        return self._part is None

    def snapshot(self) -> tuple[Part | None, list[Operation]]:
        return self._part, []

    def committed(self, zxid: int | None) -> None:
        if self._tell is not None:
            self._tell(zxid)


class _Claimant:
    """Takes the place of a consumer for `GroupMember`, and only stores the claim."""

    pace = 0.0

    def __init__(self) -> None:
        self.claimed: tuple[str, Claim] | None = None
        self.dispatchers: dict[int, Dispatcher] = {}

    def begin(self, number: int, path: str, claimed: Claim) -> None:  # noqa: ARG002 - there is one partition
        self.claimed = path, claimed

    def end(self, number: int, timeout: float) -> None:
        """Do nothing: there are no dispatchers."""

    def removed(self) -> None:
        """Do nothing: the cursor notices it itself."""

    def release_rest(self) -> None:
        """Do nothing: there is nothing to store."""

    def tend(self) -> bool:
        return False


class Cursor:
    """The reader of a durable subscription, by place. Not thread-safe.

    `strict` raises `Missing` where messages were removed by others; else that is a warning.
    """

    def __init__(
        self,
        parts: CursorParts,
        topic: str,
        name: str,
        *,
        strict: bool = True,
        timeout: float = 60.0,
    ) -> None:
        self.topic = topic
        self.name = name
        self._context = context = parts.context
        self._session = context.session
        self._tree = context.tree
        self._live_registration = parts.live_registration
        self._durable_registration = parts.durable_registration
        self._strict = strict
        self._timeout = timeout
        self._queue = context.tree.queue(name, topic)
        self._news = threading.Event()
        """Set when the queue is to be listed again."""
        self._listing: _Listing | None = None
        self._claimant = _Claimant()
        self._member: GroupMember | None = None
        self._ownership: Ownership | None = None
        self._trail: CursorTrail | None = None
        """None if no trail is recorded."""
        self._flag: tuple[int, FullFlag] | None = None
        """The full flag to clear, and the sequence of its gap; kept until it is known to be cleared."""
        self._generation = 0
        self._verified = 0.0

    # -- life ----------------------------------------------------------------------------------------------------

    def open(self, *, takeover: bool = False, patience: float | None = None) -> None:
        """Subscribe if necessary, and become the owner.

        `SubscriptionInUse` if another process still reads it after `patience` seconds: by default as long as ZooKeeper
        may take to notice that the last reader was killed.
        """
        request = SubscribeOptions(topic=self.topic, name=self.name)
        request.check()
        found = self._durable_registration.find(self.topic, self.name)
        if found is None or found.kind != "durable":  # else it is used with its own limits and selector
            found, _ = self._durable_registration.subscribe(request)
        member = GroupMember(self._context, self._live_registration, self.topic, self.name, found, self._claimant)
        deadline = time.monotonic() + (2 * self._session.timeout + 5 if patience is None else patience)
        try:
            member.join()
            while (owner := member.claim_alone(takeover)) is not None:
                if time.monotonic() >= deadline:
                    raise SubscriptionInUse(self.topic, self.name, owner)
                time.sleep(POLL)
        except BaseException:
            member.leave()
            raise
        assert self._claimant.claimed is not None  # noqa: S101 - there is no other owner, so we are
        path, claimed = self._claimant.claimed
        self._member, self._generation = member, self._session.generation
        self._ownership = Ownership(self._session, path, claimed, lambda reason: log.warning("%s: %s", path, reason))
        if not self._ownership.watermark.known:
            ended = claimed.ended
            first = first_after(self._session, self._queue, ended) if ended else self._look().created
            self._ownership.watermark.doubtful = lambda: first
        if self._context.trail.records:
            place = self._tree, self.topic, self.name
            self._trail = CursorTrail(self._context.trail, self._session, *place, self._ownership)
            self._trail.began(claimed.zxid)
        self._session.listen(self._changed)

    def close(self) -> None:
        """Release the subscription; unacked messages stay."""
        ownership, member, self._ownership, self._member = self._ownership, self._member, None, None
        if ownership is None or member is None:
            return
        if self._session.state is State.CONNECTED:
            ownership.drain(5.0)
            ownership.release()
        member.leave()

    def _changed(self) -> None:
        """Handle a change of the session's state, on the connection's thread."""
        ownership = self._ownership
        self._news.set()
        if ownership is not None and self._session.state is State.CONNECTED:
            ownership.reconnected()

    def _ours(self) -> Ownership:
        """Return the ownership; `Closed` if another process has taken the subscription over."""
        ownership, member = self._ownership, self._member
        if ownership is None or member is None:
            raise Closed("the cursor is closed")
        if self._session.generation != self._generation:
            member.join()
            ownership.renew()
            self._generation, self._verified = self._session.generation, 0.0
        if time.monotonic() - self._verified >= VERIFY_EVERY:
            ownership.verify()
            self._verified = time.monotonic()
        if ownership.lost is not None:
            raise Closed(f"{self.name!r} of {self.topic!r} is not read here any more: {ownership.lost}")
        return ownership

    # -- positions -----------------------------------------------------------------------------------------------

    def begin(self) -> CursorPlace:
        """Return the position before the first unacked message."""
        ownership, here = self._ours(), self._look()
        if not here.entries:
            return CursorPlace(queue=here.made, entry=here.created)
        first = here.entries[0]
        part = ownership.parts.get(first.sequence)
        return CursorPlace(
            queue=here.made, entry=first.sequence, message=0 if part is None else min(part.done, first.messages)
        )

    def end(self) -> CursorPlace:
        """Return the position after the last entry."""
        self._ours()
        here = self._look()
        return CursorPlace(queue=here.made, entry=here.created)

    def advance(
        self, start: CursorPlace, most: int | None = None, until: CursorPlace | None = None, wait: float = 0.0
    ) -> CursorPlace:
        """Return the position up to `most` messages after `start`, at most `until`; `start` itself if there are none.

        Waits up to `wait` seconds for the first message.
        """
        self._ours()
        found = self._reach(start, self._look(), most, until)
        if found is start and wait:
            self._news.wait(wait)
            found = self._reach(start, self._look(), most, until)
        return found

    def _reach(self, start: CursorPlace, here: _Listing, most: int | None, until: CursorPlace | None) -> CursorPlace:
        begin = self._resume(start, here)
        last = here.created if until is None or until.queue != here.made else min(until.entry, here.created)
        entry, message = last, 0
        for each in here.between(begin.entry, last):
            first = begin.message if each.sequence == begin.entry else 0
            count = max(0, each.messages - first)
            if most is not None and count > most:
                entry, message = each.sequence, first + most
                break
            most = None if most is None else most - count
        if begin is start and (entry, message) <= (start.entry, start.message):
            return start
        return CursorPlace(queue=here.made, entry=entry, message=message, at=int(time.time()))

    def _resume(self, start: CursorPlace, here: _Listing) -> CursorPlace:
        if start.queue == here.made:
            return start
        self._missed("the subscription was given up, and made anew, since this place was noted")
        return CursorPlace(queue=here.made, entry=0)

    def slices(self, start: CursorPlace, end: CursorPlace) -> list[Slice]:
        """Return the messages between two positions, in order: the same at every call until `end` is acked."""
        ownership, here = self._ours(), self._look()
        if end.queue != here.made:
            self._missed("the subscription was given up, and made anew, since this batch was planned")
            return []
        start = self._resume(start, here)
        entries = here.between(start.entry, end.entry + bool(end.message))
        self._check_numbers(here, start.entry, end.entry + bool(end.message))
        found = []
        for entry in entries:
            path = self._path(entry)
            if entry.gap:
                self._missed(f"something may have been missed: {self._gap(path).reason}")
                continue
            first = start.message if entry.sequence == start.entry else 0
            last = end.message if entry.sequence == end.entry else entry.messages
            part = ownership.parts.get(entry.sequence)
            if first < last:
                found.append(Slice(path, first, last, 0 if part is None else mask_of(part, entry.messages)))
        return found

    def _check_numbers(self, here: _Listing, first: int, last: int) -> None:
        """Raise `Missing` if entries are missing for another reason than expiry."""
        absent = here.absent(first, last)
        if not absent:
            return
        state = self._state()
        removed = here.removed(first, last, state)
        if removed < absent:
            log.warning("%r of %r: %d entries are left out, expired", self.name, self.topic, absent - removed)
        if not removed:
            return
        reason = "by another reader of this name, or by hand"
        if not state.reason.startswith("expired") and not here.removed(max(first, state.dropped + 1), last, state):
            reason = state.reason
        if here.strangers:
            reason += f"; or their numbers were taken by {here.strangers} znodes that are not ours"
        self._missed(f"{removed} entries from number {first} to {last - 1} were removed and not read here: {reason}")

    def _missed(self, what: str) -> None:
        if self._trail is not None:
            self._trail.missed(what)
        if self._strict:
            raise Missing(self.topic, self.name, what)
        log.warning("%r of %r: %s; going on", self.name, self.topic, what)

    # -- acks ----------------------------------------------------------------------------------------------------

    def ack(self, place: CursorPlace) -> None:
        """Ack and remove all messages before this position; this is stored when the call returns."""
        ownership, here = self._ours(), self._look()
        if place.queue != here.made:
            return
        entries = here.between(0, place.entry)
        flagging = [entry for entry in entries if entry.gap and self._gap(self._path(entry)).full]
        parts: list[tuple[Entry, Part | None]] = [(entry, None) for entry in entries if entry not in flagging]
        for entry in here.between(place.entry, place.entry + bool(place.message)):
            before = ownership.parts.get(entry.sequence)
            part = _part(before, place.message, entry.messages)
            if part != before:
                parts.append((entry, part))
        self._store(ownership, parts, self._look_at(ownership, place, [entry for entry, _ in parts]))
        if flagging:  # after the acks, which make room; a reader that dies here leaves the gap for the next one
            last = flagging[-1].sequence
            if self._flag is None or self._flag[0] != last:
                self._flag = last, FullFlag(self._session, self._tree, self.topic, self.name)
            self._flag[1].clear()
            self._store(ownership, [(entry, None) for entry in flagging], {})

    def _store(
        self, ownership: Ownership, parts: Sequence[tuple[Entry, Part | None]], tellers: dict[int, Tell]
    ) -> None:
        stored = [
            ownership.mark(_Done(self._path(entry), entry.sequence, part, tellers.get(entry.sequence)), wait=True)
            for entry, part in parts
        ]
        deadline = time.monotonic() + self._timeout
        for future in stored:
            try:
                if future is not None:
                    future.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError as error:
                raise ConnectionLost("ZooKeeper did not answer; what was not acked now will be later") from error
            except ZkmsError as error:
                raise Closed(f"{self.name!r} of {self.topic!r} is not read here any more: {error}") from error

    def _look_at(self, ownership: Ownership, place: CursorPlace, entries: Sequence[Entry]) -> dict[int, Tell]:
        """Record what is delivered, and return the functions that record its acks; {} without a trail."""
        if self._trail is None:
            return {}
        slices = []
        for entry in entries:
            last = place.message if entry.sequence == place.entry else entry.messages
            part = ownership.parts.get(entry.sequence)
            done = 0 if part is None else mask_of(part, entry.messages)
            if not entry.gap:
                slices.append(Slice(self._path(entry), 0, last, done))
        return self._trail.look(slices, place.at)

    # -- listing -------------------------------------------------------------------------------------------------

    def _look(self) -> _Listing:
        """Return the listing of the queue, which is read again only after a change."""
        if self._listing is not None and not self._news.is_set():
            return self._listing
        self._news.clear()
        try:
            names, stat = self._session.children(self._queue, self._news.set)
        except NodeMissing as error:
            raise NotSubscribed(self.topic, f"the subscription {self.name!r} was given up by somebody") from error
        created = count_created(stat)  # this counts znodes of other programs too
        entries = sorted(entry for entry in map(parse_entry, names) if not entry.foreign and entry.sequence < created)
        if len(entries) < len(names):
            log.warning("%s has %d znodes that are not ours: left alone", self._queue, len(names) - len(entries))
        numbers = [entry.sequence for entry in entries]
        self._listing = _Listing(stat.czxid, created, entries, numbers, len(names) - len(entries))
        return self._listing

    def _path(self, entry: Entry) -> str:
        return f"{self._queue}/{entry.name}"

    def _gap(self, path: str) -> GapRecord:
        try:
            return decode(self._session.get(path)[0], GapRecord)
        except (NodeMissing, Unauthorised, msgspec.MsgspecError):
            return GapRecord("for an unknown reason")

    def _state(self) -> QueueState:
        return read_record(self._session.get(self._queue)[0], QueueState, self._queue)


def _part(before: Part | None, message: int, count: int) -> Part:
    """Return the acked part of an entry after its first `message` messages are acked."""
    done = ((1 << message) - 1) | (0 if before is None else mask_of(before, count))
    first = (~done & (done + 1)).bit_length() - 1
    more = done >> first
    tries = {} if before is None else {index: tried for index, tried in before.tries.items() if not done >> index & 1}
    return Part(first, f"{more:x}" if more else "", tries)
