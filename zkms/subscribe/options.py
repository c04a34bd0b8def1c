"""What bus.subscribe() was asked for: checked before anything is sent."""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from zkms.checks import Codec, check_count, check_positive
from zkms.deliver.live import AckMode, Handler, OnError, OnGap
from zkms.errors import InvalidArgument, Unauthorised
from zkms.message.message import Message
from zkms.names import check_subscription, check_topic, is_pattern
from zkms.tree.records import DEFAULT_BYTES, MOST_BYTES, Registration
from zkms.zookeeper.session import AclPolicy

DEFAULT_LIMIT = 100_000
DEFAULT_PARTITIONS = 8
MAX_PARTITIONS = 1024
DEFAULT_TTR = 30.0
Overflow = Literal["gap", "reject", "drop-oldest"]


class SubscribeOptions(msgspec.Struct, kw_only=True, frozen=True):
    """The arguments of bus.subscribe(); what is None takes its kind's default."""

    topic: str
    handler: Handler | None = None
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
    on_error: OnError | None = None
    make: builtins.type[Message] = Message
    """What messages are made as: zkms.aio has its own."""

    def check(self) -> None:
        """`InvalidArgument` that says what cannot work."""
        check_topic(self.topic)
        for what, callback in (("handler", self.handler), ("on_gap", self.on_gap), ("on_error", self.on_error)):
            if callback is not None and not callable(callback):
                raise InvalidArgument(f"{what} must be callable, not {callback!r:.60}")
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


def check_target(topic: str) -> str:
    """A topic that can be published to: a pattern cannot."""
    check_topic(topic)
    if is_pattern(topic):
        raise InvalidArgument(f"{topic!r} is a pattern: subscribe to it, and publish to a topic that it stands for")
    return topic
