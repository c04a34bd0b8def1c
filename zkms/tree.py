"""Every znode path of zkms, spelled here and nowhere else.

    ROOT                                layout version and policy (access.py), written once the rest exists
      clients/ID                        ephemeral: one per connected process (host, pid, version)
      subscribers                       `Patterns`: the topics in use that stand for others
      subscribers/TOPIC                 its data version is the membership epoch: bumped by every (un)subscribe and flag
      subscribers/TOPIC/SUBSCRIPTION    a `Registration`: ephemeral if live, persistent if durable or a group
      subscribers/TOPIC/SUBSCRIPTION!   persistent flag: the queue is over its limit, publishers skip it
      messages/LANE/TOPIC               a queue; its data is a `QueueState`
      messages/LANE/TOPIC/ENTRY         sequential persistent: a frame of 1..n messages, a pointer to one, or a gap
      groups/SUBSCRIPTION/TOPIC         a durable subscription or a group: its `Plan`, who is to read which partition
      groups/SUBSCRIPTION/TOPIC/members/CLIENT  ephemeral: who is there to read it
      groups/SUBSCRIPTION/TOPIC/lanes/N `Ledger`: who reads partition N, and how far; its version is the fence
      bodies/PRODUCER/NUMBER            a frame that was too big for a copy in every queue
      delayed/BUCKET/ENTRY              a frame that is not due yet, or a `Moved` record: see delayed.py
      ids/TOPIC/SHARD/HASH              a message id that must not be stored again for a while
      ids/TOPIC/w.SECONDS.SEQUENCE      the hashes of a frame's ids: by these they are forgotten
      dead/SUBSCRIPTION/TOPIC/ENTRY     dead letters, and what was found in a queue and is not ours, byte by byte
      producers/ID                      `ProducerState`: last sequence number, for exactly-once publish
      cleaner/CANDIDATE                 ephemeral sequential: who stands for election; the lowest leads
      restores                          `Restores`: whose restore may write, by its version, and how far each file's got
      staged/JOB                        `Job` of staging.py: what it publishes, and how far it is
      staged/JOB/RUN                    bytes that are staged below it
      staged/JOB/RUN/PART/NUMBER        messages put aside by one process until the job is committed

A lane is one queue of a subscription. Live and durable subscriptions have one, called as they are; a group has one for
each partition, `GROUP#N`.

An entry's name is `KIND.COUNT.BYTES.SEQUENCE`: how many messages it holds and how big it is can be told from a listing
alone, so that limits and prefetch need no reads. A small frame is in the name itself, `m.COUNT.BYTES.FRAME.SEQUENCE`:
the event that tells of the entry is then all that its reader needs. A pointer's name is
`b.COUNT.BYTES.NUMBER.PRODUCER.SEQUENCE`, and says where the body is. Before the kind may stand `pPRIORITY.`, and
`xSECONDS.`: when the last of its messages expires. ZooKeeper appends the ten-digit sequence.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec

LAYOUT = 2
DEFAULT_BYTES = 64 * 1024 * 1024
MOST_BYTES = 192 * 1024 * 1024
"""Bytes that may wait in one queue, and the most that a subscription can ask for: less than a producer may keep in
bodies, so that one slow queue stops nobody."""
FULL_MARK = "!"
ID_LOG = "w."
LANE_MARK = "#"
MAX_PRIORITY = 9
MAX_RUNS = 32
"""Runs of expired entries that a queue remembers."""
_ENTRY = re.compile(r"([fg])\.(\d{1,9})\.(\d{1,9})\.(\d{10})", re.ASCII)
_CARRIER = re.compile(r"m\.(\d{1,9})\.(\d{1,9})\.([A-Za-z0-9_-]{1,1000})\.(\d{10})", re.ASCII)
_TERMS = re.compile(r"(?:p([1-9])\.)?(?:x(\d{1,12})\.)?", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{32}")
_POINTER = re.compile(r"b\.(\d{1,9})\.(\d{1,9})\.(\d{1,18})\.(.+)\.(\d{10})", re.ASCII)


class Tree(msgspec.Struct, frozen=True):
    """The paths below one root."""

    root: str

    @property
    def clients(self) -> str:
        """Parent of the connected processes."""
        return f"{self.root}/clients"

    @property
    def subscribers(self) -> str:
        """Parent of the topics."""
        return f"{self.root}/subscribers"

    @property
    def messages(self) -> str:
        """Parent of the queues."""
        return f"{self.root}/messages"

    @property
    def bodies(self) -> str:
        """Parent of the producers' bodies."""
        return f"{self.root}/bodies"

    @property
    def dead(self) -> str:
        """Parent of what was set aside."""
        return f"{self.root}/dead"

    @property
    def producers(self) -> str:
        """Parent of the producers' sequence numbers."""
        return f"{self.root}/producers"

    @property
    def cleaner(self) -> str:
        """Parent of the candidates for the cleaner's election."""
        return f"{self.root}/cleaner"

    @property
    def groups(self) -> str:
        """Parent of what durable subscriptions and groups know of themselves."""
        return f"{self.root}/groups"

    @property
    def delayed(self) -> str:
        """Parent of the buckets of what is not due yet."""
        return f"{self.root}/delayed"

    def bucket(self, begins: int) -> str:
        """Where that waits which is due in the seconds from then on."""
        return f"{self.root}/delayed/{begins:012d}"

    @property
    def ids(self) -> str:
        """Parent of the remembered message ids."""
        return f"{self.root}/ids"

    @property
    def restores(self) -> str:
        """What is known of restores; made by the first."""
        return f"{self.root}/restores"

    @property
    def staged(self) -> str:
        """Parent of the jobs that publish in two steps; made by the first."""
        return f"{self.root}/staged"

    @property
    def skeleton(self) -> tuple[str, ...]:
        """What exists in every zkms tree, in the order of creation."""
        return (
            self.clients, self.subscribers, self.messages, self.bodies, self.dead, self.producers, self.cleaner,
            self.groups, self.delayed, self.ids,
        )  # fmt: skip

    def client(self, client: str) -> str:
        """One connected process."""
        return f"{self.clients}/{client}"

    def topic(self, topic: str) -> str:
        """A topic: parent of its registrations, bearer of its epoch."""
        return f"{self.subscribers}/{topic}"

    def registration(self, topic: str, subscription: str) -> str:
        """Who subscribes to a topic."""
        return f"{self.subscribers}/{topic}/{subscription}"

    def full_flag(self, topic: str, subscription: str) -> str:
        """Exists while publishers skip the subscription's queue, which is over its limit."""
        return f"{self.subscribers}/{topic}/{subscription}{FULL_MARK}"

    def subscription(self, lane: str) -> str:
        """Parent of a lane's queues."""
        return f"{self.messages}/{lane}"

    def queue(self, lane: str, topic: str) -> str:
        """A lane's queue for one topic."""
        return f"{self.messages}/{lane}/{topic}"

    def group(self, subscription: str, topic: str) -> str:
        """What a durable subscription or a group knows of itself."""
        return f"{self.groups}/{subscription}/{topic}"

    def members(self, subscription: str, topic: str) -> str:
        """Parent of those who are there to read it."""
        return f"{self.groups}/{subscription}/{topic}/members"

    def member(self, subscription: str, topic: str, client: str) -> str:
        """One who is there to read it."""
        return f"{self.groups}/{subscription}/{topic}/members/{client}"

    def ledgers(self, subscription: str, topic: str) -> str:
        """Parent of the ledgers."""
        return f"{self.groups}/{subscription}/{topic}/lanes"

    def ledger(self, subscription: str, topic: str, partition: int) -> str:
        """Who reads a partition, and how far."""
        return f"{self.groups}/{subscription}/{topic}/lanes/{partition}"

    def bodies_of(self, producer: str) -> str:
        """Parent of one producer's bodies."""
        return f"{self.bodies}/{producer}"

    def body(self, producer: str, number: int) -> str:
        """A frame that entries of several queues point to; its number is that of its first message."""
        return f"{self.bodies}/{producer}/{number}"

    def shelf(self, subscription: str) -> str:
        """Parent of what was set aside from a subscription's queues."""
        return f"{self.dead}/{subscription}"

    def dead_queue(self, subscription: str, topic: str) -> str:
        """What was set aside from a subscription's queue."""
        return f"{self.dead}/{subscription}/{topic}"

    def id(self, topic: str, id: str) -> str:
        """What remembers a message id."""
        digest = id_hash(id)
        return f"{self.ids}/{topic}/{digest[:2]}/{digest[2:]}"

    def id_log(self, topic: str, at: float) -> str:
        """Where to create the log of a frame's ids, by which they are forgotten; ZooKeeper appends the sequence."""
        return f"{self.ids}/{topic}/{ID_LOG}{int(at)}."

    def letter(self, subscription: str, topic: str, size: int) -> str:
        """Where to create a dead letter; ZooKeeper appends the sequence."""
        return f"{self.dead_queue(subscription, topic)}/d.1.{size}."

    def staged_job(self, job: str) -> str:
        """A job that publishes in two steps."""
        return f"{self.staged}/{job}"

    def staged_run(self, job: str, run: str) -> str:
        """What is put aside for one run of a job."""
        return f"{self.staged}/{job}/{run}"

    def staged_part(self, job: str, run: str, part: str) -> str:
        """What one process has put aside for it."""
        return f"{self.staged}/{job}/{run}/{part}"

    def producer(self, producer: str) -> str:
        """A producer's last sequence number."""
        return f"{self.producers}/{producer}"


def id_hash(id: str) -> str:
    """What a message id is remembered as."""
    return blake2b(id.encode(), digest_size=16).hexdigest()


def id_log_time(name: str) -> int:
    """When a log of ids was made, in seconds since the epoch; -1 if that is none."""
    seconds = name.removeprefix(ID_LOG).partition(".")[0]
    return int(seconds) if name.startswith(ID_LOG) and seconds.isascii() and seconds.isdigit() else -1


def hashes_in(topic_path: str, data: bytes) -> list[str]:
    """The paths of the ids that a log names."""
    names = data.decode("ascii", "replace").split()
    return [f"{topic_path}/{name[:2]}/{name[2:]}" for name in names if _HASH.fullmatch(name)]


def lanes_of(subscription: str, registration: Registration) -> list[str]:
    """The names of a subscription's lanes, in the order of its partitions."""
    if registration.kind != "group":
        return [subscription]
    return [lane_of(subscription, number) for number in range(registration.partitions)]


def lane_of(group: str, partition: int) -> str:
    """The lane of a group's partition."""
    return f"{group}{LANE_MARK}{partition}"


def subscription_of(lane: str) -> str:
    """The subscription that a lane belongs to."""
    return lane.partition(LANE_MARK)[0]


class Entry(NamedTuple):
    """A queue entry as its name tells it."""

    sequence: int
    name: str
    messages: int = 0
    size: int = 0
    gap: bool = False
    foreign: bool = False
    body: tuple[str, int] | None = None
    """Producer and number of the body that a pointer points to."""
    carrier: bool = False
    """Whether the name carries the frame: see `carried`."""
    priority: int = 0
    expires: int = 0
    """Seconds since the epoch after which none of its messages is delivered any more; 0 for never."""


def entry_prefix(
    count: int,
    size: int,
    *,
    gap: bool = False,
    body: tuple[str, int] | None = None,
    carried: bytes | None = None,
    priority: int = 0,
    expires: int = 0,
) -> str:
    """The name to create an entry under; ZooKeeper appends the sequence."""
    terms = (f"p{priority}." if priority else "") + (f"x{expires}." if expires else "")
    if terms:
        return terms + entry_prefix(count, size, gap=gap, body=body, carried=carried)
    if carried is not None:
        return f"m.{count}.{size}.{urlsafe_b64encode(carried).rstrip(b'=').decode()}."
    if body is not None:
        return f"b.{count}.{size}.{body[1]}.{body[0]}."
    return f"{'g' if gap else 'f'}.{count}.{size}."


def parse_entry(name: str) -> Entry:
    """What an entry's name says; a name that zkms did not make is `foreign`."""
    if name[:1] in ("p", "x") and (terms := _TERMS.match(name)) is not None and terms.end():
        entry = _parse_kind(name[terms.end() :])  # which has no terms again: a long row of them must not go deep
        return entry._replace(name=name, priority=int(terms[1] or 0), expires=int(terms[2] or 0))
    return _parse_kind(name)


def _parse_kind(name: str) -> Entry:
    if name.startswith("m"):
        return _parse_carrier(name)
    match = _ENTRY.fullmatch(name)
    if match is None:
        return _parse_pointer(name)
    kind, count, size, sequence = match.groups()
    return Entry(int(sequence), name, int(count), int(size), gap=kind == "g")


def _parse_carrier(name: str) -> Entry:
    match = _CARRIER.fullmatch(name)
    if match is None:
        return Entry(-1, name, foreign=True)
    count, size, _, sequence = match.groups()
    return Entry(int(sequence), name, int(count), int(size), carrier=True)


def carried(name: str) -> bytes:
    """The frame that a carrier's name holds; nothing if it was not made by us."""
    text = name.rsplit(".", 2)[1]
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        return b""


def _parse_pointer(name: str) -> Entry:
    match = _POINTER.fullmatch(name)
    if match is None or match[4] in (".", ".."):
        return Entry(-1, name, foreign=True)
    count, size, number, producer, sequence = match.groups()
    return Entry(int(sequence), name, int(count), int(size), body=(producer, int(number)))


class Registration(msgspec.Struct, frozen=True, tag_field="zkms", tag="registration", omit_defaults=True):
    """The data of `subscribers/TOPIC/SUBSCRIPTION`: what a publisher must know of a subscription."""

    client: str
    limit: Annotated[int, msgspec.Meta(ge=1)]
    """Messages that may wait in its queue."""
    kind: Literal["live", "durable", "group"] = "live"
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_BYTES
    """Bytes that may."""
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    """Of a group: its lanes, each of which has these limits."""
    overflow: Literal["gap", "reject", "drop-oldest"] = "gap"
    """What becomes of a message that has no room."""
    max_age: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds after which a message is removed unread; 0 for never."""
    where: dict[str, list[str]] | None = None
    """Of the messages it wants: headers, and the values that each may have; None for all messages."""
    owner: tuple[str, ...] = ()
    """Who alone may read what is for it, in a tree with a policy: identities, see access.py."""


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
    """The claim of the restore that fills it, until its subscription is registered: see journal.py."""

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
    """What is known of a message that was given out and not acked: how often, when it is due again, and why."""

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
    """The data of a lane's ledger: who reads it, and what is done with of the entries that are still there.

    Every ack is a transaction that writes it at the version that the owner knows, and whoever takes the lane over
    writes it too: from then on the former owner's acks are refused. `epoch` counts the owners.
    """

    owner: str = ""
    """The client that reads the lane; empty if the last one has given it back."""
    claim: str = ""
    """Tells two readers of one client apart."""
    epoch: int = 0
    parts: dict[int, Part] = {}
    """By the entries' sequence."""
    handed: dict[int, int] | None = None
    """By priority, the number behind the last entry that was handed over, as the last owner left word; None if none."""
    doubtful: int = 0
    """Entries below this number may have been handed over by an owner that died."""


class Patterns(msgspec.Struct, frozen=True, tag_field="zkms", tag="patterns"):
    """The data of `subscribers`: the topic patterns that anybody subscribes to."""

    patterns: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True, tag_field="zkms", tag="plan", omit_defaults=True):
    """The data of a group: which client is to read which partition. Not more than a wish: ledgers decide."""

    lanes: dict[int, str] = {}


class MemberState(msgspec.Struct, frozen=True, tag_field="zkms", tag="member", omit_defaults=True):
    """The data of a group's member."""

    host: str = ""
    pid: int = 0
    lanes: int = 0
    """Partitions that it has."""
    reserved: int = 0
    """Messages in its hands."""
    handled: int = 0
    """Messages done with since it joined."""
    stuck: bool = False
    """Whether a message has been in its hands for longer than its time to run: it is given no partitions."""
    pace: float = 0.0
    """Seconds that a message takes it on average."""
    hands: dict[int, int] = {}
    """Messages in its hands, by partition."""


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
    """Identities by role: the policy by which everybody has to make znodes, see access.py."""


Record = (
    Registration
    | QueueState
    | Patterns
    | Ledger
    | Plan
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
