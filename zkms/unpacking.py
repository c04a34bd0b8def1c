"""From a queue entry's bytes to a subscriber's messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from zkms import frame as frames
from zkms.codec import Codec, decode_with
from zkms.errors import CannotDecode, InvalidArgument
from zkms.message import Handover, Message


class Unpacker:
    """Decodes what a subscription gets, into the type it asks for."""

    def __init__(self, topic: str, type: Any, codec: Codec | None) -> None:
        self._topic = topic
        self._type = type
        self._codec = codec
        if type is not None:
            try:
                msgspec.json.Decoder(type)  # looks at the type, and refuses what no message could become
            except (TypeError, NameError) as error:
                raise InvalidArgument(f"type={type!r:.80} is nothing to decode into: {error}") from error

    def unpack(self, raw: bytes, done: Callable[[], None]) -> tuple[list[Message], list[CannotDecode]]:
        """An entry's messages, and the reasons why others cannot be decoded; or `CannotDecode` if it is no frame."""
        frame = frames.decode(raw)
        messages = frame.messages
        handover = Handover(self._topic, frame.producer, frame.seq, frame.published_at, len(messages), done)
        index = 0
        for message in messages:
            message.entry = handover
            message.index = index
            index += 1  # noqa: SIM113 - runs for every message, and enumerate() would make a tuple for each
        if self._type is None and frame.codec is None:
            return messages, []
        return self._convert(messages, frame.codec, handover)

    def _convert(
        self, messages: list[Message], codec: str | None, handover: Handover
    ) -> tuple[list[Message], list[CannotDecode]]:
        good, bad = [], []
        for message in messages:
            try:
                if codec is not None:
                    message.data = decode_with(self._codec, codec, message.data)
                if self._type is not None:
                    message.data = msgspec.convert(message.data, self._type)
            except (CannotDecode, msgspec.MsgspecError) as error:
                reason = error.reason if isinstance(error, CannotDecode) else f"not a {_name(self._type)}: {error}"
                bad.append(CannotDecode(f"message {message.id}: {reason}"))
                handover.skip(message.index)
            else:
                good.append(message)
        return good, bad


def _name(type: Any) -> str:
    return str(getattr(type, "__name__", type))
