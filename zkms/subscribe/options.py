"""The options of subscribe() and create_group(), for both buses; the defaults are those of `SubscribeOptions`."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypedDict, TypeVar, Unpack

import msgspec

from zkms.checks import Codec, check_count, check_positive
from zkms.deliver.live import AckMode, OnGap
from zkms.errors import InvalidArgument, Unauthorised
from zkms.message.message import Message
from zkms.names import check_subscription, check_topic
from zkms.tree.records import DEFAULT_BYTES, MOST_BYTES, Registration
from zkms.zookeeper.session import AclPolicy

DEFAULT_LIMIT = 100_000
DEFAULT_PARTITIONS = 8
MAX_PARTITIONS = 1024
DEFAULT_TTR = 30.0
Overflow = Literal["gap", "reject", "drop-oldest"]


M = TypeVar("M", bound=Message)
"""The messages of a bus: zkms.aio has its own."""


class QueueOptions(TypedDict, total=False):
    """Options of any subscription: what is stored for it, and how much."""

    where: Mapping[str, str | Sequence[str]] | None
    """Headers, each with the value or the values that a message must have."""
    limit: int
    """Messages that may wait, in each partition; 100,000 by default."""
    max_bytes: int
    """Bytes that may wait, in each partition; 64 MiB by default."""
    overflow: Overflow | None
    """What happens past the limits: "gap" (the default where it is live), "reject" (that of others), "drop-oldest"."""
    max_age: float | None
    """Seconds that a message waits at the most; without end by default."""


class GroupQueueOptions(QueueOptions, total=False):
    """Options of create_group()."""

    partitions: int
    """Partitions that the group is split into; 8 by default."""


class LiveOptions(QueueOptions, Generic[M], total=False):
    """Options of subscribe(), whatever its kind."""

    ack: AckMode | None
    """"manual" leaves it to message.ack(), "auto" acks on delivery; by default that depends on the way of reading."""
    type: Any
    """What the data is decoded into, and validated against: a msgspec Struct, a dataclass, ..."""
    codec: Codec | None
    """Decodes the data, instead of the codec of the bus."""
    prefetch: int
    """Messages that are read ahead; 10,000 by default."""
    on_gap: OnGap | None
    """Called with each `Gap`: messages that were published and not stored here."""
    on_error: Callable[[Exception, M | None], object] | None
    """Called with what a handler raised and its message, or with why an entry could not be decoded and None."""


class RetryOptions(LiveOptions[M], total=False):
    """Options of subscribe() with a `name` or a `group`."""

    max_attempts: int | None
    """Deliveries after which a message is a dead letter; 3 by default, None for no end."""
    backoff: float
    """Seconds before the second attempt, doubled for each one after it; 1 by default."""


class DurableOptions(RetryOptions[M], total=False):
    """Options of subscribe() with a `name`."""

    takeover: bool
    """Whether it is taken from another process that reads it; False by default."""


class GroupOptions(RetryOptions[M], total=False):
    """Options of subscribe() with a `group`."""

    partitions: int | None
    """Partitions that the group is split into; by default as many as it has, or 8 if it is new."""
    ttr: float | None
    """Seconds after which a message that is not acked is delivered again; 30 by default."""


class SubscribeOptions(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The arguments of bus.subscribe(); what is None takes its kind's default."""

    topic: str
    handler: Callable[[Any], object] | None = None
    name: str | None = None
    group: str | None = None
    partitions: int | None = None
    ttr: float | None = None
    max_attempts: int | None = 3
    backoff: float = 1.0
    takeover: bool = False
    where: Mapping[str, str | Sequence[str]] | None = None
    overflow: Overflow | None = None
    max_age: float | None = None
    ack: AckMode | None = None
    type: Any = None
    codec: Codec | None = None
    limit: int = DEFAULT_LIMIT
    max_bytes: int = DEFAULT_BYTES
    prefetch: int = 10_000
    on_gap: OnGap | None = None
    on_error: Callable[[Exception, Any], object] | None = None
    make: ClassVar[builtins.type[Message]] = Message
    """What messages are made as."""

    @classmethod
    def of_group(
        cls, topic: str, group: str, *, partitions: int = DEFAULT_PARTITIONS, **queue: Unpack[QueueOptions]
    ) -> SubscribeOptions:
        """The arguments of bus.create_group(), which says how many partitions it wants; `TypeError` for any others."""
        for option in queue:
            if option not in QueueOptions.__annotations__:
                raise TypeError(f"create_group() got an unexpected keyword argument {option!r}")
        return cls(topic=topic, group=group, partitions=partitions, **queue)

    def check_callbacks(self) -> None:
        """`InvalidArgument` unless the topic is one, and what is to be called can be."""
        check_topic(self.topic)
        for what, callback in (("handler", self.handler), ("on_gap", self.on_gap), ("on_error", self.on_error)):
            if callback is not None and not callable(callback):
                raise InvalidArgument(f"{what} must be callable, not {callback!r:.60}")

    def check(self) -> None:
        """`InvalidArgument` that says what cannot work."""
        self.check_callbacks()
        if self.ack not in (None, "auto", "manual"):
            raise InvalidArgument(f"ack is 'auto' or 'manual', not {self.ack!r}")
        for what, value in (("limit", self.limit), ("max_bytes", self.max_bytes), ("prefetch", self.prefetch)):
            check_count(what, value)
        if self.max_bytes > MOST_BYTES:
            raise InvalidArgument(f"max_bytes must be at most {MOST_BYTES:,}, not {self.max_bytes:,}")
        if self.overflow not in (None, "gap", "reject", "drop-oldest"):
            raise InvalidArgument(f"overflow is 'gap', 'reject' or 'drop-oldest', not {self.overflow!r:.60}")
        if self.name is not None and self.group is not None:
            raise InvalidArgument("give name= for a durable subscription or group= for a group, not both")
        if self.name is not None:
            check_subscription("name", self.name)
        if self.group is not None:
            check_subscription("group", self.group)
        self._check_kept()

    def _check_kept(self) -> None:
        if self.group is None:
            for what, value in (("partitions", self.partitions), ("ttr", self.ttr)):
                if value is not None:
                    raise InvalidArgument(f"{what} is for groups: give group= too")
        if self.partitions is not None and check_count("partitions", self.partitions) > MAX_PARTITIONS:
            raise InvalidArgument(f"partitions must be at most {MAX_PARTITIONS}, not {self.partitions}")
        if self.group is not None and self.overflow == "gap":
            raise InvalidArgument("overflow='gap' is not for groups: choose 'reject' or 'drop-oldest'")
        if self.name is None and self.takeover:
            raise InvalidArgument("takeover is for durable subscriptions: give name= too")
        if self.max_attempts is not None:
            check_count("max_attempts", self.max_attempts)
        if self.ttr is not None:
            check_positive("ttr", self.ttr)
        if self.max_age is not None:
            check_positive("max_age", self.max_age)
        if not isinstance(self.backoff, (int, float)) or not 0 <= self.backoff < math.inf:
            raise InvalidArgument(f"backoff must be a number of seconds that is not negative, not {self.backoff!r:.60}")

    @property
    def kind(self) -> Literal["live", "durable", "group"]:
        """What is asked for."""
        return "durable" if self.name is not None else "group" if self.group is not None else "live"

    def registration(self, client: str, partitions: int, rights: AclPolicy | None = None) -> Registration:
        """What publishers must know of it."""
        return Registration(
            client,
            self.limit,
            self.kind,
            self.max_bytes,
            partitions,
            self.overflow or ("gap" if self.kind == "live" else "reject"),
            self.max_age or 0.0,
            check_where(self.where),
            _owner(rights),
        )


def _owner(rights: AclPolicy | None) -> tuple[str, ...]:
    """Who alone may read what is for us; nobody in particular where there is no policy."""
    if rights is not None and not rights.owner:
        raise Unauthorised("this tree's policy (access=) does not count these credentials among its subscribers")
    return () if rights is None else rights.owner


def check_where(where: object) -> dict[str, list[str]] | None:
    """A selector: headers, each with the value or the values that it may have."""
    if where is None:
        return None
    if not isinstance(where, Mapping) or not where:
        raise InvalidArgument("where: give a mapping of headers to a value, or to several values")
    checked: dict[str, list[str]] = {}
    for header, values in where.items():
        listed = [values] if isinstance(values, str) else list(values) if isinstance(values, Sequence) else []
        if not isinstance(header, str) or not listed or not all(isinstance(value, str) for value in listed):
            raise InvalidArgument(f"where: {header!r:.60} needs a str, or a list of str, not {values!r:.60}")
        checked[header] = listed
    return checked
