"""What can be said about a message when it is published; the defaults are those of `Publisher`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypedDict

from zkms.checks import Codec

IfNobody = Literal["raise", "drop"]


class SharedOptions(TypedDict, total=False):
    """Options of any message."""

    headers: Mapping[str, str] | None
    """Names and values that travel with the message, and that `where=` of a subscription selects by."""
    priority: int
    """0 to 9: those of a higher one are delivered first. 0 by default."""
    delay: float | None
    """Seconds to wait before it is published."""
    at: float | datetime | None
    """When it is published: seconds since the epoch, or a datetime with a time zone."""
    ttl: float | None
    """Seconds after which it is not delivered any more."""
    to_self: bool
    """Whether the live subscription of this bus gets it too; True by default."""
    if_nobody: IfNobody
    """What happens where nobody subscribes: "raise" `NoSubscribers`, which is the default, or "drop" the message."""
    codec: Codec | None
    """Encodes the data, instead of the codec of the bus."""


class PublishOptions(SharedOptions, total=False):
    """Options of publish(), on a bus and in a transaction."""

    key: str | None
    """Messages of one key are handled in order by a group."""
    id: str | None
    """The message's own id: a second one of the same id, within ten minutes, is a `DuplicateMessage`."""


class ManyOptions(SharedOptions, total=False):
    """Options of publish_many(): what is a message's own is computed from its data."""

    key: Callable[[Any], str] | None
    """Messages of one key are handled in order by a group."""
    id: Callable[[Any], str] | None
    """The receipt of a message whose id was given before says so: `duplicate_of`."""


class StreamOptions(TypedDict, total=False):
    """Options of publisher()."""

    linger: float
    """Seconds that a frame waits for more messages; 0.005 by default."""
    max_in_flight: int
    """Messages on their way past which send() waits; 20,000 by default."""
    to_self: bool
    """Whether the live subscription of this bus gets them too; True by default."""
    if_nobody: IfNobody
    """What happens where nobody subscribes: "raise" `NoSubscribers`, which is the default, or "drop" the message."""
    codec: Codec | None
    """Encodes the data, instead of the codec of the bus."""
    timeout: float | None
    """Seconds for each frame, and for the wait for room; that of the bus by default."""


class Kind(NamedTuple):
    """What messages must have in common to travel in one frame."""

    topic: str
    to_self: bool = True
    drop: bool = False
    """Whether nobody there is fine."""
    codec: str | None = None
    priority: int = 0
    due: float | None = None
    """When they are to be published; None for now."""
