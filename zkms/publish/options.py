"""The options of publish(), publish_many() and publisher(); the defaults are those of `Publisher`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypedDict

from zkms.checks import Codec

IfNobody = Literal["raise", "drop"]


class SharedOptions(TypedDict, total=False):
    """Options of any message."""

    headers: Mapping[str, str] | None
    """Names and values that are delivered with the message; `where=` of a subscription selects by them."""
    priority: int
    """0 to 9, 0 by default: messages of a higher priority are delivered first."""
    delay: float | None
    """Seconds to wait before it is published."""
    at: float | datetime | None
    """When it is published: seconds since the epoch, or a datetime with a time zone."""
    ttl: float | None
    """Seconds after which it is not delivered any more."""
    to_self: bool
    """Whether the live subscription of this bus gets it too; True by default."""
    if_nobody: IfNobody
    """What happens if nobody subscribes: "raise" `NoSubscribers`, which is the default, or "drop" the message."""
    codec: Codec | None
    """Encodes the data, instead of the codec of the bus."""


class PublishOptions(SharedOptions, total=False):
    """Options of publish(), on a bus and in a transaction."""

    key: str | None
    """A group handles messages of one key in order."""
    id: str | None
    """The message's own id: a second message with this id within ten minutes raises `DuplicateMessage`."""


class ManyOptions(SharedOptions, total=False):
    """Options of publish_many(); key and id are computed from a message's data."""

    key: Callable[[Any], str] | None
    """A group handles messages of one key in order."""
    id: Callable[[Any], str] | None
    """The receipt of a message whose id was stored before says so: `duplicate_of`."""


class StreamOptions(TypedDict, total=False):
    """Options of publisher()."""

    linger: float
    """Seconds that a frame waits for more messages; 0.005 by default."""
    max_in_flight: int
    """Messages in flight at which send() waits; 20,000 by default."""
    to_self: bool
    """Whether the live subscription of this bus gets them too; True by default."""
    if_nobody: IfNobody
    """What happens if nobody subscribes: "raise" `NoSubscribers`, which is the default, or "drop" the message."""
    codec: Codec | None
    """Encodes the data, instead of the codec of the bus."""
    timeout: float | None
    """Seconds for each frame, and for the wait for room; that of the bus by default."""


class Kind(NamedTuple):
    """What messages must have in common to share a frame."""

    topic: str
    to_self: bool = True
    drop: bool = False
    """Whether the message is dropped if nobody subscribes."""
    codec: str | None = None
    priority: int = 0
    due: float | None = None
    """When they are to be published; None for now."""
