"""A message as a subscriber gets it, and the queue entry that it came in.

A message is its data, the entry that is being handed over, and the place in it: what the entry knows of its messages is
kept there, once, so that a message costs next to nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from zkms.errors import AlreadyAcked
from zkms.frame import Extra, Frame

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
NOTHING = Extra()


class Handover:
    """A queue entry in a subscriber's hands; `done` is called once, when all of its messages are done with."""

    __slots__ = ("_acked", "_done", "_finished", "_lock", "count", "extras", "producer", "published_at", "seq", "topic")

    def __init__(self, topic: str, frame: Frame, done: Callable[[], None]) -> None:
        self.topic = topic
        self.producer = frame.producer
        self.seq = frame.seq
        self.published_at = frame.published_at
        self.count = len(frame.data)
        self.extras = frame.extras
        self._done = done
        self._acked: set[int] = set()
        self._finished = False
        self._lock = threading.Lock()

    def ack(self, message: Message) -> None:
        """The user's ack of one message; a second one is `AlreadyAcked`."""
        with self._lock:
            if message.index in self._acked:
                raise AlreadyAcked(message.id)
            self._acked.add(message.index)
            complete = len(self._acked) == self.count
        if complete:
            self.finish()

    def skip(self, index: int) -> None:
        """A message that nobody will ever get, because it cannot be decoded, needs no ack."""
        with self._lock:
            self._acked.add(index)
            complete = len(self._acked) == self.count
        if complete:
            self.finish()

    def then(self, callback: Callable[[], None]) -> None:
        """Call this too when all is done with, before `done`."""
        done = self._done

        def both() -> None:
            callback()
            done()

        self._done = both

    def finish(self) -> None:
        """The whole entry is done with; harmless if that is known."""
        with self._lock:
            if self._finished:
                return
            self._finished = True
        self._done()


class Message(msgspec.Struct, gc=False, eq=False):
    """One message: what was published, by whom and when. For reading only."""

    data: Any
    entry: Any
    index: int

    @property
    def topic(self) -> str:
        """Where it was published."""
        return self._entry.topic

    @property
    def key(self) -> str | None:
        """What it is about, as the publisher gave it."""
        return self._extra.key

    @property
    def headers(self) -> Mapping[str, str]:
        """What the publisher gave along."""
        headers = self._extra.headers
        return NO_HEADERS if headers is None else headers

    @property
    def id(self) -> str:
        """The id that the publisher gave, or producer:seq, which no other message has."""
        given = self._extra.id
        return given if given is not None else f"{self.producer}:{self.seq}"

    @property
    def producer(self) -> str:
        """Who published it."""
        return self._entry.producer

    @property
    def seq(self) -> int:
        """Number of the message among all of its producer's, ascending."""
        return self._entry.seq + self.index

    @property
    def published_at(self) -> float:
        """Seconds since the epoch, by the publisher's clock."""
        return self._entry.published_at

    @property
    def attempts(self) -> int:
        """How often it was delivered, this time included; a live message is delivered once."""
        return 1

    @property
    def _extra(self) -> Extra:
        extras = self._entry.extras
        return NOTHING if extras is None else extras[self.index] or NOTHING

    @property
    def _entry(self) -> Handover:
        entry: Handover = self.entry
        return entry

    def ack(self) -> None:
        """Tell the publisher's receipt that this is done; needed only with `ack="manual"`."""
        self._entry.ack(self)

    def __repr__(self) -> str:
        return f"<Message {self.id} on {self.topic!r}>"
