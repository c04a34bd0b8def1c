"""From a queue entry's bytes to a subscriber's messages."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Iterator
from itertools import count, repeat
from typing import Any, NamedTuple, Protocol

import msgspec

from zkms.checks import Codec
from zkms.errors import CannotDecode, InvalidArgument
from zkms.message.codec import decode_with
from zkms.message.frame import Frame
from zkms.message.frame import decode as decode_frame
from zkms.message.message import LiveEntry, Message, Replier


class RawEntry(Protocol):
    """An entry as it was read from a queue."""

    @property
    def path(self) -> str: ...

    @property
    def raw(self) -> bytes: ...


class Acknowledged(Protocol):
    """An entry whose messages are acked one by one."""

    replies: Replier | None


class Undecodable(msgspec.Struct, frozen=True):
    """A message that is not of the type, or made by a codec that is not here: its place in the entry, and why."""

    index: int
    error: CannotDecode | None
    """None for one that is not delivered because it has expired."""


class DecodedEntry(NamedTuple):
    """An entry, and what is in it, in order: made while it is iterated over, once."""

    entry: LiveEntry
    items: Iterator[Message] | Iterator[Message | Undecodable]


class Decoder:
    """Decodes what a subscription gets, into the type it asks for."""

    def __init__(
        self,
        topic: str,
        type: Any,
        codec: Codec | None,
        make: builtins.type[Message] = Message,
        replies: Replier | None = None,
    ) -> None:
        self._topic = topic
        self._type = type
        self._codec = codec
        self._make = make
        self._replies = replies
        if type is not None:
            try:
                msgspec.json.Decoder(type)  # looks at the type, and refuses what no message could become
            except (TypeError, NameError) as error:
                raise InvalidArgument(f"type={type!r:.80} is nothing to decode into: {error}") from error

    def decode(self, fetched: RawEntry, done: Callable[[str], None]) -> DecodedEntry:
        """The messages of an entry, or `CannotDecode` if it is no frame; `done` gets its path when all are acked."""
        frame = decode_frame(fetched.raw)
        path = fetched.path
        entry = LiveEntry(self._topic, frame, lambda: done(path), path, self._replies)
        messages = map(self._make, frame.data, repeat(entry), count())
        if frame.extras is not None and any(extra is not None and extra.expires for extra in frame.extras):
            return DecodedEntry(entry, self._unexpired(messages, frame, fetched))
        if self._type is None and frame.codec is None:
            return DecodedEntry(entry, messages)
        return DecodedEntry(entry, (self._convert(message, frame.codec, fetched) for message in messages))

    def _unexpired(
        self, messages: Iterator[Message], frame: Frame, fetched: RawEntry
    ) -> Iterator[Message | Undecodable]:
        for message in messages:
            if message.expires is not None and time.time() >= message.expires:
                yield Undecodable(message.index, None)
            else:
                yield self._convert(message, frame.codec, fetched)

    def messages_of(
        self, frame: Frame, entry: Acknowledged, fetched: RawEntry
    ) -> Iterator[Message] | Iterator[Message | Undecodable]:
        """The messages of a frame, expired ones too, for an entry whose messages are acked one by one."""
        entry.replies = self._replies
        messages = map(self._make, frame.data, repeat(entry), count())
        if self._type is None and frame.codec is None:
            return messages
        return (self._convert(message, frame.codec, fetched) for message in messages)

    def _convert(self, message: Message, codec: str | None, fetched: RawEntry) -> Message | Undecodable:
        try:
            if codec is not None:
                message.data = decode_with(self._codec, codec, message.data)
            if self._type is not None:
                message.data = msgspec.convert(message.data, self._type)
        except Exception as error:  # noqa: BLE001 - a type may run code of the user's
            name = getattr(self._type, "__name__", self._type)
            reason = error.reason if isinstance(error, CannotDecode) else f"not a {name}: {error}"
            return Undecodable(message.index, CannotDecode(reason, path=fetched.path, raw=fetched.raw))
        return message
