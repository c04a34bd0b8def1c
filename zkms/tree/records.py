"""The records that zkms stores in znodes, as JSON that any ZooKeeper tool shows readably."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec

from zkms.errors import StoreError

DEFAULT_BYTES = 64 * 1024 * 1024
MOST_BYTES = 192 * 1024 * 1024
"""The limit of a queue's bytes by default, and the highest that a subscription may set: it is below the limit of a
producer's bodies, so that one slow queue does not stop publishing."""
MAX_RUNS = 32
"""The most runs of expired entries that a queue records."""


class Registration(msgspec.Struct, frozen=True, tag_field="zkms", tag="registration", omit_defaults=True):
    """The data of `subscribers/TOPIC/SUBSCRIPTION`: what a publisher must know about a subscription."""

    client: str
    limit: Annotated[int, msgspec.Meta(ge=1)]
    """The most messages in its queue."""
    kind: Literal["live", "durable", "group"] = "live"
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_BYTES
    """The most bytes there."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """The partitions of a group, each of which has these limits."""
    overflow: Literal["gap", "reject", "drop-oldest"] = "gap"
    """What happens when a message has no room."""
    max_age: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds after which an unread message is removed; 0 for never."""
    where: dict[str, list[str]] | None = None
    """Its selector: headers, and the values that each may have; None for all messages."""
    owner: tuple[str, ...] = ()
    """The identities that may read its entries, in a tree with a policy: see tree/acl.py."""


class QueueState(msgspec.Struct, frozen=True, tag_field="zkms", tag="queue", omit_defaults=True):
    """The data of a queue, by which a receipt knows whether a missing entry was acked.

    `gone` is the reason why the whole queue is removed, and is set before that. `dropped` is the highest sequence that
    was removed without an ack, and `reason` says why.
    """

    client: str
    gone: str = ""
    dropped: int = -1
    reason: str = ""
    expired: tuple[tuple[int, int], ...] = ()
    """First and last sequence of each run of entries that were removed because they had expired."""
    restore: str = ""
    """The claim of the restore that fills it, until its subscription is registered: see backup/restore_journal.py."""

    def expire(self, numbers: Sequence[int], reason: str) -> QueueState:
        """Return the state after these entries, at least one, have been removed because they had expired."""
        runs = _runs([*self.expired, *((number, number) for number in numbers)])
        return msgspec.structs.replace(self, dropped=max(self.dropped, *numbers), reason=reason, expired=runs)


def _runs(known: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Join neighbouring runs, and the closest ones if there are more than `MAX_RUNS`: the entries between count too."""
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
    """A message that was delivered and not acked: its attempts, when the next one is due, and the last error."""

    attempts: int
    due: float = 0.0
    error: str = ""


class Part(msgspec.Struct, frozen=True, array_like=True):
    """An entry that is partly done: the messages below `done`, and those whose bits are set in `more` (hex)."""

    done: Annotated[int, msgspec.Meta(ge=0)] = 0
    more: str = ""
    tries: dict[int, Try] = {}

    @property
    def count(self) -> int:
        """How many of its messages are done."""
        try:
            return self.done + int(self.more or "0", 16).bit_count()
        except ValueError:
            return self.done


class Ledger(msgspec.Struct, frozen=True, tag_field="zkms", tag="ledger", omit_defaults=True):
    """The data of a partition's ledger: its owner, and which messages of the remaining entries are acked.

    Every ack is a transaction that writes it at the version known to the owner. A new owner's claim writes it too, so
    the former owner's acks are refused from then on. `epoch` counts the owners.
    """

    owner: str = ""
    """The client that reads the partition; empty if the last one has released it."""
    claim: str = ""
    """Distinguishes two readers of one client."""
    epoch: int = 0
    parts: dict[int, Part] = {}
    """By the entry's sequence."""
    handed: dict[int, int] | None = None
    """By priority, the sequence after the last delivered entry, as the last owner wrote it; None if it did not."""
    doubtful: int = 0
    """Entries below this sequence may have been delivered by an owner that died."""


class Patterns(msgspec.Struct, frozen=True, tag_field="zkms", tag="patterns"):
    """The data of `subscribers`: the topic patterns in use."""

    patterns: tuple[str, ...]


class GroupPlan(msgspec.Struct, frozen=True, tag_field="zkms", tag="plan", omit_defaults=True):
    """The data of a group: the planned reader of each partition. The owner is whoever has claimed the ledger."""

    lanes: dict[int, str] = {}


class MemberState(msgspec.Struct, frozen=True, tag_field="zkms", tag="member", omit_defaults=True):
    """The data of a group's member."""

    host: str = ""
    pid: int = 0
    lanes: int = 0
    """Partitions that it owns."""
    reserved: int = 0
    """Messages in flight."""
    handled: int = 0
    """Messages done since it joined."""
    stuck: bool = False
    """Whether a message has been in flight for longer than its time to run: then it is assigned no partitions."""
    pace: float = 0.0
    """Seconds that it takes for a message, on average."""
    hands: dict[int, int] = {}
    """Messages in flight, by partition."""


class DeadLetter(msgspec.Struct, frozen=True, tag_field="zkms", tag="dead", omit_defaults=True):
    """The data of a dead letter: a frame of one message, and why it could not be handled."""

    frame: bytes
    reason: str
    at: float
    attempts: int = 0
    error: str = ""


class Moved(msgspec.Struct, frozen=True, tag_field="zkms", tag="moved", omit_defaults=True):
    """The record that replaces a delayed frame for a while: which queues got it when it was due."""

    queues: dict[str, str] = {}
    """Paths of the queues, by their names in receipts."""
    gone: dict[str, str] = {}
    """Subscriptions that did not get it, and why."""


class DeadQueueState(msgspec.Struct, frozen=True, tag_field="zkms", tag="shelf"):
    """The data of a `dead/SUBSCRIPTION/TOPIC` that a restore has made: the digest of the restored file."""

    restored: str


class FileProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the restore of one file got: the number of restored records of each kind."""

    letters: int = 0
    delayed: int = 0
    finished: bool = False


class Restores(msgspec.Struct, frozen=True, tag_field="zkms", tag="restores", omit_defaults=True):
    """The data of `restores`: the claim of the restore that may write, and the progress of each file, by digest."""

    claim: str = ""
    files: dict[str, FileProgress] = {}


class IdRecord(msgspec.Struct, frozen=True, tag_field="zkms", tag="id"):
    """The data of a remembered message id: the message that was stored with it."""

    producer: str
    seq: int


class GapRecord(msgspec.Struct, frozen=True, tag_field="zkms", tag="gap"):
    """The data of a gap entry: why messages may be missing before it."""

    reason: str
    full: bool = False
    """Whether the full flag was set with it, so that the reader has to clear it."""


class ProducerState(msgspec.Struct, frozen=True, tag_field="zkms", tag="producer", omit_defaults=True):
    """The data of `producers/ID`: the last sequence number stored, and the client that owns it.

    `claim` distinguishes two processes with the same client_id: only one of them may go on.
    """

    owner: str
    seq: Annotated[int, msgspec.Meta(ge=0, le=2**61)]
    """The limit is below that of a frame's numbers, so that frames after this one can still be read."""
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
    """Identities by role: the policy for new znodes, see tree/acl.py."""


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
    | DeadQueueState
    | Restores
    | GapRecord
    | ProducerState
    | ClientState
    | Layout
)
R = TypeVar("R", bound=Record)
encode: Callable[[Record], bytes] = msgspec.json.Encoder().encode
"""Encodes a record as JSON."""


def decode(data: bytes, kind: type[R]) -> R:
    """Decode the record of this kind; `msgspec.DecodeError` if another program wrote the data."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec lets these two through
        raise msgspec.DecodeError(str(error)) from error


def decode_or_none(data: bytes, kind: type[R]) -> R | None:
    """Decode the record of this kind; None if another program wrote the data."""
    try:
        return decode(data, kind)
    except msgspec.MsgspecError:
        return None


def read_record(data: bytes, kind: type[R], path: str, advice: str = "") -> R:
    """Decode the record of this kind from the znode at `path`; `StoreError` if another program wrote the data.

    The error ends with `advice`, or with what is wrong with the data.
    """
    try:
        return decode(data, kind)
    except msgspec.MsgspecError as error:
        raise overwritten(path, advice or error) from error


def overwritten(path: str, reason: object) -> StoreError:
    """Return the error for data that zkms did not write."""
    return StoreError(f"overwritten by another program: {reason}", path=path)
