"""What rooms report to a trail, and what they show of themselves for it.

Everybody has a `Recorder` and reports to it; one that records nothing stands where no trail was asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from zkms.message.frame import Packed
from zkms.message.message import LiveEntry
from zkms.tree.entry import Entry
from zkms.tree.records import Registration, Try


class SubscriberLike(Protocol):
    """Who gets messages, and of which topic or pattern."""

    id: str
    topic: str


class ConsumerLike(SubscriberLike, Protocol):
    """Who reads a durable subscription or a group."""

    kind: str


class OwnershipLike(Protocol):
    """The ownership of a partition."""

    since: int
    """The owner's epoch."""


class DispatcherLike(Protocol):
    """Who delivers the messages of a partition."""

    partition: int

    @property
    def ownership(self) -> OwnershipLike:
        """By which right."""


class EntryStateLike(Protocol):
    """An entry whose messages are acked one by one."""

    topic: str
    producer: str
    seq: int
    count: int
    numbers: list[int] | None
    published_at: float
    size: int
    priority: int
    tries: dict[int, Try]
    """Attempts that have failed, by message."""

    def attempts(self, index: int) -> int:
        """How often a message was delivered."""

    def expires(self, index: int) -> float:
        """When a message expires; 0 for never."""


class MemberLike(Protocol):
    """A subscription, as publishers know it."""

    @property
    def subscription(self) -> str:
        """Its name, or its id."""

    @property
    def topic(self) -> str:
        """The topic or the pattern that it subscribes to."""

    @property
    def registration(self) -> Registration:
        """What it has registered with."""


class TargetLike(Protocol):
    """A queue that gets a frame, or messages of it."""

    @property
    def member(self) -> MemberLike:
        """Whose queue it is."""

    @property
    def picks(self) -> Collection[int] | None:
        """The places in the frame of those that it gets; None for all."""


class FrameLike(Protocol):
    """A frame that is stored."""

    topic: str
    seq: int
    at: float
    size: int
    packed: list[Packed]
    """Its messages."""
    duplicates: dict[int, str]
    """The places of messages that were published before."""

    @property
    def targets(self) -> Sequence[TargetLike]:
        """Who gets it."""


class DelayedFrameLike(FrameLike, Protocol):
    """A frame that is published later."""

    due: float


class Recorder:
    """Records nothing: the trail of those who leave none. `FileRecorder` is the one that writes."""

    records = False
    """Whether anything is recorded: ask before work that only a trail needs."""

    def published(self, frame: FrameLike, producer: str, zxid: int | None) -> None:
        """A frame is stored for its targets."""

    def delayed(self, frame: DelayedFrameLike, producer: str, zxid: int | None) -> None:
        """A frame is stored, to be published when it is due."""

    def due(
        self, frame: FrameLike, producer: str, numbers: Sequence[int], left: Sequence[int], due: float, zxid: int | None
    ) -> None:
        """What is left of a frame is moved to its targets; `numbers` are those of its messages less the first one's."""

    def delivered(self, subscriber: SubscriberLike, entry: LiveEntry, size: int, priority: int) -> None:
        """A frame goes to a live subscriber; its ack will be recorded as well."""

    def moved(self, topic: str, old: str, new: str) -> None:
        """A live subscription goes on with a new queue."""

    def undecodable(self, subscriber: SubscriberLike, entry: LiveEntry, index: int, reason: str) -> None:
        """One message of a frame cannot become what the live subscriber asked for."""

    def expired(self, subscriber: SubscriberLike, entry: LiveEntry, index: int) -> None:
        """One message of a frame has expired before a live subscriber got it."""

    def happened(
        self,
        event: str,
        consumer: ConsumerLike,
        dispatcher: DispatcherLike,
        entry: EntryStateLike,
        bits: int,
        *,
        zxid: int | None = None,
        reason: str | None = None,
    ) -> None:
        """What became of messages of a durable subscription or a group, a bit for each."""

    def set_aside(self, sub: str, topic: str, entry: Entry, reason: str, kind: str = "live") -> None:
        """A queue entry is no frame of ours."""

    def purged(self, queue: str, topic: str, names: Iterable[str], reason: str) -> None:
        """Entries of these names were removed from a queue."""

    def session(self, generation: int, state: str) -> None:
        """The session is in this state; `generation` counts how often it was made anew. May be said again."""

    def note(self, event: str, *, sub: str | None = None, topic: str | None = None, **fields: Any) -> None:
        """Anything that happens seldom."""

    def close(self) -> None:
        """Write what is left. Safe to call again."""
