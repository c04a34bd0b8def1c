"""What the znodes hold that zkms writes: one record each, as JSON that any ZooKeeper tool shows readably."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec

from zkms.errors import StoreError

DEFAULT_BYTES = 64 * 1024 * 1024
MOST_BYTES = 192 * 1024 * 1024
"""Bytes that may wait in one queue, and the most that a subscription can ask for: less than a producer may keep in
bodies, so that one slow queue stops nobody."""
MAX_RUNS = 32
"""Runs of expired entries that a queue remembers."""


class Registration(msgspec.Struct, frozen=True, tag_field="zkms", tag="registration", omit_defaults=True):
    """The data of `subscribers/TOPIC/SUBSCRIPTION`: what a publisher must know of a subscription."""

    client: str
    limit: Annotated[int, msgspec.Meta(ge=1)]
    """Messages that may wait in its queue."""
    kind: Literal["live", "durable", "group"] = "live"
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_BYTES
    """Bytes that may wait there."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Of a group: its partitions, each of which has these limits."""
    overflow: Literal["gap", "reject", "drop-oldest"] = "gap"
    """What becomes of a message that has no room."""
    max_age: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds after which a message is removed unread; 0 for never."""
    where: dict[str, list[str]] | None = None
    """Of the messages it wants: headers, and the values that each may have; None for all messages."""
    owner: tuple[str, ...] = ()
    """Who alone may read what is for it, in a tree with a policy: identities, see tree/acl.py."""


class QueueState(msgspec.Struct, frozen=True, tag_field="zkms", tag="queue", omit_defaults=True):
    """The data of a queue. `gone` is set, with the reason, before anything but an ack removes entries for good.

    `dropped` is the highest sequence that was removed otherwise than by an ack, and `reason` why: a receipt that finds
    its entry gone reads here whether that was an ack.
    """

    client: str
    gone: str = ""
    dropped: int = -1
    reason: str = ""
    expired: tuple[tuple[int, int], ...] = ()
    """Runs of entries, each by its first and last number, that were removed when their time was over."""
    restore: str = ""
    """The claim of the restore that fills it, until its subscription is registered: see backup/restore_journal.py."""

    def expire(self, numbers: Sequence[int], reason: str) -> QueueState:
        """The state after these entries, at least one, have been removed because their time was over."""
        runs = _runs([*self.expired, *((number, number) for number in numbers)])
        return msgspec.structs.replace(self, dropped=max(self.dropped, *numbers), reason=reason, expired=runs)


def _runs(known: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Neighbours joined; of more than `MAX_RUNS` also those that lie closest: then what is between them counts too."""
    runs: list[tuple[int, int]] = []
    for first, last in sorted(known):
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = runs[-1][0], max(runs[-1][1], last)
        else:
            runs.append((first, last))
    closest = sorted(range(1, len(runs)), key=lambda place: runs[place][0] - runs[place - 1][1])
    for place in sorted(closest[: max(0, len(runs) - MAX_RUNS)], reverse=True):
        runs[place - 1 : place + 1] = [(runs[place - 1][0], runs[place][1])]
    return tuple(runs)


class Try(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a message that was delivered and not acked: how often, when it is due again, and why."""

    attempts: int
    due: float = 0.0
    error: str = ""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """An entry that is partly done with: messages below `done`, and those whose bits are set in `more` (hex)."""

    done: Annotated[int, msgspec.Meta(ge=0)] = 0
    more: str = ""
    tries: dict[int, Try] = {}

    @property
    def count(self) -> int:
        """How many of its messages are done with."""
        try:
            return self.done + int(self.more or "0", 16).bit_count()
        except ValueError:
            return self.done


class Ledger(msgspec.Struct, frozen=True, tag_field="zkms", tag="ledger", omit_defaults=True):
    """The data of a partition's ledger: who reads it, and which messages of the entries still there are acked.

    Every ack is a transaction that writes it at the version that the owner knows, and whoever takes the partition over
    writes it too: from then on the former owner's acks are refused. `epoch` counts the owners.
    """

    owner: str = ""
    """The client that reads the partition; empty if the last one has given it up."""
    claim: str = ""
    """Tells two readers of one client apart."""
    epoch: int = 0
    parts: dict[int, Part] = {}
    """By the entries' sequence."""
    handed: dict[int, int] | None = None
    """By priority, the number after the last delivered entry, as the last owner wrote it; None if it did not."""
    doubtful: int = 0
    """Entries below this number may have been delivered by an owner that died."""


class Patterns(msgspec.Struct, frozen=True, tag_field="zkms", tag="patterns"):
    """The data of `subscribers`: the topic patterns that anybody subscribes to."""

    patterns: tuple[str, ...]


class GroupPlan(msgspec.Struct, frozen=True, tag_field="zkms", tag="plan", omit_defaults=True):
    """The data of a group: which client is to read which partition. Not more than a wish: ledgers decide."""

    lanes: dict[int, str] = {}


class MemberState(msgspec.Struct, frozen=True, tag_field="zkms", tag="member", omit_defaults=True):
    """The data of a group's member."""

    host: str = ""
    pid: int = 0
    lanes: int = 0
    """Partitions that it has."""
    reserved: int = 0
    """Messages in flight."""
    handled: int = 0
    """Messages done with since it joined."""
    stuck: bool = False
    """Whether a message has been in flight for longer than its time to run: it is given no partitions."""
    pace: float = 0.0
    """Seconds that a message takes it on average."""
    hands: dict[int, int] = {}
    """Messages in flight, by partition."""


class DeadLetter(msgspec.Struct, frozen=True, tag_field="zkms", tag="dead", omit_defaults=True):
    """The data of a dead letter: a frame of one message, and why nobody could do with it."""

    frame: bytes
    reason: str
    at: float
    attempts: int = 0
    error: str = ""


class Moved(msgspec.Struct, frozen=True, tag_field="zkms", tag="moved", omit_defaults=True):
    """What takes a delayed frame's place for a while: who got it when it was due."""

    queues: dict[str, str] = {}
    """The queues that it was put into, by the names that receipts have for them."""
    gone: dict[str, str] = {}
    """Who did not get it, and why."""


class Shelf(msgspec.Struct, frozen=True, tag_field="zkms", tag="shelf"):
    """The data of `dead/SUBSCRIPTION/TOPIC` where a restore has made it: of which file, by its digest."""

    restored: str


class FileProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the restore of one file got: records of each kind that are dealt with."""

    letters: int = 0
    delayed: int = 0
    finished: bool = False


class Restores(msgspec.Struct, frozen=True, tag_field="zkms", tag="restores", omit_defaults=True):
    """The data of `restores`: the restore that may write, and what became of the last files, by their digests."""

    claim: str = ""
    files: dict[str, FileProgress] = {}


class IdRecord(msgspec.Struct, frozen=True, tag_field="zkms", tag="id"):
    """The data of a remembered message id: which message was stored under it."""

    producer: str
    seq: int


class GapRecord(msgspec.Struct, frozen=True, tag_field="zkms", tag="gap"):
    """The data of a gap entry: from here on something may have been missed, and why."""

    reason: str
    full: bool = False
    """Whether the queue is flagged as full, so that its reader has to clear the flag."""


class ProducerState(msgspec.Struct, frozen=True, tag_field="zkms", tag="producer", omit_defaults=True):
    """The data of `producers/ID`: the last sequence number stored, and the client that writes here.

    `claim` tells two processes apart that were given the same client_id: only one of them may go on.
    """

    owner: str
    seq: Annotated[int, msgspec.Meta(ge=0, le=2**61)]
    """The bound leaves room below that of a frame's: what follows this number can be read."""
    claim: str = ""


class ClientState(msgspec.Struct, frozen=True, tag_field="zkms", tag="client"):
    """The data of `clients/ID`."""

    host: str
    pid: int
    version: str
    started: float


class Layout(msgspec.Struct, frozen=True, tag_field="zkms", tag="root", omit_defaults=True):
    """The data of ROOT."""

    layout: int
    access: dict[str, tuple[str, ...]] | None = None
    """Identities by role: the policy by which everybody has to make znodes, see tree/acl.py."""


Record = (
    Registration
    | QueueState
    | Patterns
    | Ledger
    | GroupPlan
    | MemberState
    | DeadLetter
    | IdRecord
    | Moved
    | Shelf
    | Restores
    | GapRecord
    | ProducerState
    | ClientState
    | Layout
)
R = TypeVar("R", bound=Record)
_encoder = msgspec.json.Encoder()


def encode(record: Record) -> bytes:
    """A record as JSON, so that any ZooKeeper tool shows it readably."""
    return _encoder.encode(record)


def decode(data: bytes, kind: type[R]) -> R:
    """The record of this kind in a znode's data; `msgspec.DecodeError` if another program wrote it."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec lets these two through
        raise msgspec.DecodeError(str(error)) from error


def decode_or_none(data: bytes, kind: type[R]) -> R | None:
    """The record of this kind in a znode's data; None if another program wrote it."""
    try:
        return decode(data, kind)
    except msgspec.MsgspecError:
        return None


def read_record(data: bytes, kind: type[R], path: str, advice: str = "") -> R:
    """The record of this kind in the data of the znode at `path`; `StoreError` if another program wrote it.

    The error ends with `advice`, or with what is wrong with the data.
    """
    try:
        return decode(data, kind)
    except msgspec.MsgspecError as error:
        raise overwritten(path, advice or error) from error


def overwritten(path: str, reason: object) -> StoreError:
    """The error of data that zkms did not write."""
    return StoreError(f"overwritten by another program: {reason}", path=path)
