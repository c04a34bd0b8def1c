"""Every znode path of zkms, spelled here and nowhere else.

    ROOT                                layout version, written once the rest exists
      clients/ID                        ephemeral: one per connected process (host, pid, version)
      subscribers/TOPIC                 its data version is the membership epoch: bumped by every (un)subscribe and flag
      subscribers/TOPIC/SUBSCRIPTION    ephemeral: a `Registration`
      subscribers/TOPIC/SUBSCRIPTION!   persistent flag: the queue is over its limit, publishers skip it
      messages/SUBSCRIPTION/TOPIC       the queue; its data is a `QueueState`
      messages/SUBSCRIPTION/TOPIC/ENTRY sequential persistent: a frame of 1..n messages, a pointer to one, or a gap
      bodies/PRODUCER/NUMBER            a frame that was too big for a copy in every queue
      dead/SUBSCRIPTION/TOPIC/ENTRY     what was found in a queue and is not ours: set aside, byte by byte
      producers/ID                      `ProducerState`: last sequence number, for exactly-once publish
      cleaner/CANDIDATE                 ephemeral sequential: who stands for election; the lowest leads

An entry's name is `KIND.COUNT.BYTES.SEQUENCE`: how many messages it holds and how big it is can be told from a listing
alone, so that limits and prefetch need no reads. A small frame is in the name itself, `m.COUNT.BYTES.FRAME.SEQUENCE`:
the event that tells of the entry is then all that its reader needs. A pointer's name is
`b.COUNT.BYTES.NUMBER.PRODUCER.SEQUENCE`, and says where the body is. ZooKeeper appends the ten-digit sequence.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, NamedTuple, Protocol, TypeVar

import msgspec

LAYOUT = 1
DEFAULT_BYTES = 64 * 1024 * 1024
MOST_BYTES = 192 * 1024 * 1024
"""Bytes that may wait in one queue, and the most that a subscription can ask for: less than a producer may keep in
bodies, so that one slow queue stops nobody."""
FULL_MARK = "!"
_ENTRY = re.compile(r"([fg])\.(\d{1,9})\.(\d{1,9})\.(\d{10})", re.ASCII)
_CARRIER = re.compile(r"m\.(\d{1,9})\.(\d{1,9})\.([A-Za-z0-9_-]{1,1000})\.(\d{10})", re.ASCII)
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
    def skeleton(self) -> tuple[str, ...]:
        """What exists in every zkms tree, in the order of creation."""
        return (
            self.clients, self.subscribers, self.messages, self.bodies, self.dead, self.producers, self.cleaner
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

    def subscription(self, subscription: str) -> str:
        """Parent of a subscription's queues."""
        return f"{self.messages}/{subscription}"

    def queue(self, subscription: str, topic: str) -> str:
        """A subscription's queue for one topic."""
        return f"{self.messages}/{subscription}/{topic}"

    def bodies_of(self, producer: str) -> str:
        """Parent of one producer's bodies."""
        return f"{self.bodies}/{producer}"

    def body(self, producer: str, number: int) -> str:
        """A frame that entries of several queues point to; its number is that of its first message."""
        return f"{self.bodies}/{producer}/{number}"

    def dead_queue(self, subscription: str, topic: str) -> str:
        """What was set aside from a subscription's queue."""
        return f"{self.dead}/{subscription}/{topic}"

    def producer(self, producer: str) -> str:
        """A producer's last sequence number."""
        return f"{self.producers}/{producer}"


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


def entry_prefix(
    count: int, size: int, *, gap: bool = False, body: tuple[str, int] | None = None, carried: bytes | None = None
) -> str:
    """The name to create an entry under; ZooKeeper appends the sequence."""
    if carried is not None:
        return f"m.{count}.{size}.{urlsafe_b64encode(carried).rstrip(b'=').decode()}."
    if body is not None:
        return f"b.{count}.{size}.{body[1]}.{body[0]}."
    return f"{'g' if gap else 'f'}.{count}.{size}."


def parse_entry(name: str) -> Entry:
    """What an entry's name says; a name that zkms did not make is `foreign`."""
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
    text = name.split(".")[3]
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


class Limited(Protocol):
    """A subscription, as far as publishers have to know it."""

    limit: int
    max_bytes: int


class Registration(msgspec.Struct, frozen=True, tag_field="zkms", tag="registration", omit_defaults=True):
    """The data of `subscribers/TOPIC/SUBSCRIPTION`: what a publisher must know of a subscription."""

    client: str
    limit: Annotated[int, msgspec.Meta(ge=1)]
    """Messages that may wait in its queue."""
    kind: str = "live"
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_BYTES
    """Bytes that may."""

    @classmethod
    def of(cls, client: str, subscription: Limited) -> Registration:
        """What publishers must know of this one."""
        return cls(client, subscription.limit, max_bytes=subscription.max_bytes)


class QueueState(msgspec.Struct, frozen=True, tag_field="zkms", tag="queue", omit_defaults=True):
    """The data of a queue. `gone` is set, with the reason, before anything but an ack removes entries for good.

    `dropped` is the highest sequence that was removed otherwise than by an ack, and `reason` why: a receipt that finds
    its entry gone reads here whether that was an ack.
    """

    client: str
    gone: str = ""
    dropped: int = -1
    reason: str = ""


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
    seq: int
    claim: str = ""


class ClientState(msgspec.Struct, frozen=True, tag_field="zkms", tag="client"):
    """The data of `clients/ID`."""

    host: str
    pid: int
    version: str
    started: float


class Layout(msgspec.Struct, frozen=True, tag_field="zkms", tag="root"):
    """The data of ROOT."""

    layout: int


Record = Registration | QueueState | GapRecord | ProducerState | ClientState | Layout
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
