"""The envelope of a queue entry: one to n messages of one producer, checked end to end.

    offset  0  magic    4 bytes  b"zkms"
            4  version  1 byte   1
            5  zero     3 bytes
            8  crc32    4 bytes  of the body
           12  length   4 bytes  of the body
           16  body     MessagePack: [producer, seq, published_at, data, codec, extras, numbers, topic,
                               again]

`data` has the data of each message, as MessagePack's own bytes, str, map, ..., so that what was published as text
arrives as text without a word about it; with a codec, each is the bytes that the codec made. `extras`, if any message
has one, has a [key, headers, id, expires] or nil for each. `numbers` has, for a frame of which this is a part, each
message's number less `seq`; without it they are 0, 1, 2... `topic` is said where the queue's name does not say it;
`again` of what was a dead letter, and is to be delivered again.
A message is encoded once, when it is published; a frame is decoded at once, and its messages are made one by one as
they are delivered. Arrays may end early.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, Any
from zlib import crc32

import msgspec

from zkms.errors import CannotDecode, InvalidMessage

MAGIC = b"zkms"
VERSION = 1
"""What is written. A new one is written only when all readers know it: one release reads it, the next one writes it."""
READABLE = frozenset({VERSION})
"""What is read: the versions before `VERSION` too, as long as anything of theirs may wait somewhere."""
_HEADER = struct.Struct("!4sBxxxII")
HEADER_SIZE = _HEADER.size
UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)
"""What encoding raises of data that cannot be written so: JSON has no map whose keys are lists, and MessagePack has."""


class Packed(msgspec.Struct, frozen=True):
    """One message as it travels, with what it adds to a frame's `size`."""

    raw: bytes
    size: int
    codec: str | None = None
    """The name of the codec that made its data, if one did."""
    extra: bytes | None = None
    key: str | None = None
    id: str | None = None
    headers: dict[str, str] | None = None
    expires: float = 0.0
    """Seconds since the epoch after which it is not delivered any more; 0 for never."""
    priority: int = 0
    """All messages of a frame have the same."""


LAST_SECOND = 253_402_300_800.0
"""The first one of the year 10000: a later moment, or one that is no number, was not written by zkms."""


class Extra(msgspec.Struct, frozen=True, array_like=True):
    """What a message has besides its data."""

    key: str | None = None
    headers: dict[str, str] | None = None
    id: str | None = None
    expires: Annotated[float, msgspec.Meta(ge=0.0, le=LAST_SECOND)] = 0.0


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """1..n messages of one producer, numbered from `seq`; `published_at` is seconds since the epoch."""

    producer: str
    seq: Annotated[int, msgspec.Meta(ge=0, le=2**62)]
    published_at: Annotated[float, msgspec.Meta(ge=0.0, lt=LAST_SECOND)]
    data: list[Any]
    codec: str | None = None
    extras: list[Extra | None] | None = None
    numbers: list[Annotated[int, msgspec.Meta(ge=0, lt=2**32)]] | None = None
    topic: str | None = None
    again: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


def pack(
    data: Any,
    key: str | None = None,
    headers: dict[str, str] | None = None,
    id: str | None = None,
    codec: str | None = None,
    expires: float = 0.0,
    priority: int = 0,
) -> Packed:
    """One message, or `InvalidMessage` if its data are nothing that can travel."""
    try:
        raw = _encode(data)
        if key is None and headers is None and id is None and not expires:
            return Packed(raw, len(raw), codec, priority=priority)
        extra = _encode((key, headers, id, expires) if expires else (key, headers, id))
    except UNWRITABLE as error:
        raise InvalidMessage(
            f"cannot encode {type(data).__name__}: {error}; give bytes, str, what JSON can hold, or a codec="
        ) from error
    return Packed(raw, len(raw) + len(extra), codec, extra, key, id, headers, expires, priority)


def encode(
    producer: str,
    seq: int,
    published_at: float,
    messages: Sequence[Packed],
    numbers: Sequence[int] | None = None,
    topic: str | None = None,
    *,
    again: bool = False,
) -> bytes:
    """The bytes of a queue entry; all messages are of one codec."""
    data = [msgspec.Raw(message.raw) for message in messages]
    parts: list[Any] = [producer, seq, published_at, data, messages[0].codec]
    extras = None
    if any(message.extra is not None for message in messages):
        extras = [None if message.extra is None else msgspec.Raw(message.extra) for message in messages]
    if again:
        parts += [extras, numbers, topic, again]
    elif numbers is not None or topic is not None:
        parts += [extras, numbers, topic]
    elif extras is not None:
        parts.append(extras)
    body = _encode(parts)
    return _HEADER.pack(MAGIC, VERSION, crc32(body), len(body)) + body


def decode(raw: bytes) -> Frame:
    """The frame in a queue entry, or `CannotDecode` with the reason in plain words."""
    if len(raw) < HEADER_SIZE or raw[:4] != MAGIC or any(raw[5:8]):
        raise CannotDecode("not written by zkms", raw=raw)
    _, version, checksum, length = _HEADER.unpack_from(raw)
    if version not in READABLE:
        raise CannotDecode(f"frame version {version}, this zkms reads {', '.join(map(str, READABLE))}", raw=raw)
    body = memoryview(raw)[HEADER_SIZE:]
    if len(body) != length:
        raise CannotDecode(f"truncated: {len(body)} of {length} bytes", raw=raw)
    if crc32(body) != checksum:
        raise CannotDecode("damaged: checksum does not match", raw=raw)
    try:
        frame = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CannotDecode(f"malformed frame: {error}", raw=raw) from error
    if not frame.data:
        raise CannotDecode("malformed frame: no messages", raw=raw)
    if frame.extras is not None and len(frame.extras) != len(frame.data):
        raise CannotDecode(f"malformed frame: {len(frame.extras)} extras for {len(frame.data)} messages", raw=raw)
    if frame.numbers is not None and len(frame.numbers) != len(frame.data):
        raise CannotDecode(f"malformed frame: {len(frame.numbers)} numbers for {len(frame.data)} messages", raw=raw)
    return frame
