"""A message as a subscriber gets it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Acknowledger(Protocol):
    """Who takes a message's acknowledgement: the subscription's hand-over."""

    def ack(self, message: Message) -> None:
        """The message is done with."""
        ...


class Message(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One message: what was published, by whom and when."""

    data: Any
    topic: str
    key: str | None = None
    headers: Mapping[str, str] = NO_HEADERS
    producer: str
    seq: int
    """Number of the message among all of its producer's, ascending."""
    published_at: float
    """Seconds since the epoch, by the publisher's clock."""
    attempts: int = 1
    given_id: str | None = None
    acknowledger: Acknowledger

    @property
    def id(self) -> str:
        """The id that the publisher gave, or producer:seq, which no other message has."""
        return self.given_id if self.given_id is not None else f"{self.producer}:{self.seq}"

    def ack(self) -> None:
        """Tell the publisher's receipt that this is done; needed only with `ack="manual"`."""
        self.acknowledger.ack(self)

    def __repr__(self) -> str:
        return f"<Message {self.id} on {self.topic!r}>"
