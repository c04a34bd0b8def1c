"""A message as a subscriber gets it, and the queue entry that it came in.

A message is its data, the entry that is being delivered, and the place in it: what the entry knows of its messages is
kept there, once, so that a message costs next to nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from zkms.checks import Codec
from zkms.errors import AlreadyAcked, InvalidArgument
from zkms.message.frame import Extra, Frame

REQUEST = "zkms-request"
"""The header of a request: its id."""
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
NOTHING = Extra()


class Replier(Protocol):
    """What sends the answers to requests."""

    def reply(self, message: Message, data: Any, error: str | None, codec: Codec | None) -> None: ...


class Deliverable(Protocol):
    """What a message needs of the entry that it came in."""

    topic: str
    producer: str
    seq: int
    published_at: float
    extras: list[Extra | None] | None
    numbers: list[int] | None
    path: str
    replies: Replier

    def ack(self, message: Message) -> None: ...

    def nak(self, message: Message, delay: float | None, error: str | None) -> None: ...

    def touch(self, message: Message) -> None: ...

    def reject(self, message: Message, reason: str) -> None: ...

    def attempts(self, index: int) -> int: ...


class LiveEntry:
    """An entry of a live subscription that is in flight; `done` is called once, when all its messages are done with."""

    __slots__ = (
        "_acked",
        "_done",
        "_finished",
        "_lock",
        "count",
        "extras",
        "numbers",
        "path",
        "producer",
        "published_at",
        "replies",
        "seq",
        "topic",
    )

    def __init__(
        self, topic: str, frame: Frame, done: Callable[[], None], path: str = "", replies: Replier | None = None
    ) -> None:
        self.topic = topic if frame.topic is None else frame.topic
        self.producer = frame.producer
        self.seq = frame.seq
        self.published_at = frame.published_at
        self.count = len(frame.data)
        self.extras = frame.extras
        self.numbers = frame.numbers
        self.path = path
        self.replies = replies
        """Where answers to requests are sent from."""
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

    def nak(self, message: Message, delay: float | None, error: str | None) -> None:  # noqa: ARG002 - others use it
        """Not for live messages."""
        raise InvalidArgument(
            f"{message!r} is live, and not delivered twice: nak() is for durable subscriptions and groups"
        )

    def touch(self, message: Message) -> None:
        """Not for live messages."""
        raise InvalidArgument(f"{message!r} is live, and has no time to run: touch() is for groups")

    def reject(self, message: Message, reason: str) -> None:  # noqa: ARG002 - see nak
        """Not for live messages."""
        raise InvalidArgument(f"{message!r} is live: reject() is for durable subscriptions and groups")

    def attempts(self, index: int) -> int:  # noqa: ARG002 - see nak
        """A live message is delivered once."""
        return 1

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
        numbers = self._entry.numbers
        return self._entry.seq + (self.index if numbers is None else numbers[self.index])

    @property
    def published_at(self) -> float:
        """Seconds since the epoch, by the publisher's clock."""
        return self._entry.published_at

    @property
    def attempts(self) -> int:
        """How often it was delivered, this time included; a live message is delivered once."""
        return self._entry.attempts(self.index)

    @property
    def _extra(self) -> Extra:
        extras = self._entry.extras
        return NOTHING if extras is None else extras[self.index] or NOTHING

    @property
    def _entry(self) -> Deliverable:
        entry: Deliverable = self.entry
        return entry

    @property
    def expires(self) -> float | None:
        """Seconds since the epoch after which it would not have been delivered; None if it does not expire."""
        return self._extra.expires or None

    def ack(self) -> None:
        """This is done with: it is never delivered again, and the publisher's receipt says so.

        Returns when that is stored (a live message: soon). A handler acks by returning. `LostOwnership` says that
        another process has, or will get, the message.
        """
        self._entry.ack(self)

    def nak(self, delay: float | None = None, *, error: str | None = None) -> None:
        """This could not be done: deliver it again after `delay` seconds, or after a pause that grows each time.

        After the subscription's `max_attempts` it goes to the dead letters instead, with the last `error`.
        """
        self._entry.nak(self, delay, error)

    def touch(self) -> None:
        """This takes longer: its time to run begins anew."""
        self._entry.touch(self)

    def reject(self, reason: str) -> None:
        """This can never be done: put it to the dead letters."""
        self._entry.reject(self, reason)

    @property
    def is_request(self) -> bool:
        """Whether somebody waits for an answer: see reply()."""
        return REQUEST in self.headers

    def reply(self, data: Any = None, *, error: str | None = None, codec: Codec | None = None) -> None:
        """Answer a request, with data or with an error; whoever asked may be gone, which is no error here.

        The first answer of a subscription counts. It is no ack, and an ack is no answer.
        """
        self._entry.replies.reply(self, data, error, codec)

    def __repr__(self) -> str:
        return f"<Message {self.id} on {self.topic!r}>"
