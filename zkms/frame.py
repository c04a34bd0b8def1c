"""The envelope of a queue entry: one to n messages of one producer, checked end to end.

    offset  0  magic    4 bytes  b"zkms"
            4  version  1 byte   1
            5  zero     3 bytes
            8  crc32    4 bytes  of the body
           12  length   4 bytes  of the body
           16  body     MessagePack: [producer, seq of the first message, published_at, [[format, data, key, ...], ...]]

Arrays may grow at their end: a reader ignores what it does not know, and fills what is missing with defaults.
"""

from __future__ import annotations

import struct
from zlib import crc32

import msgspec

from zkms.codec import Format
from zkms.errors import CannotDecode

MAGIC = b"zkms"
VERSION = 1
_HEADER = struct.Struct("!4sBxxxII")
HEADER_SIZE = _HEADER.size


class Packed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message as it travels."""

    format: Format
    data: bytes
    key: str | None = None
    headers: dict[str, str] | None = None
    id: str | None = None


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """1..n messages of one producer, numbered from `seq`; `published_at` is seconds since the epoch."""

    producer: str
    seq: int
    published_at: float
    messages: list[Packed]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


def encode(frame: Frame) -> bytes:
    """The bytes of a queue entry."""
    body = _encode(frame)
    return _HEADER.pack(MAGIC, VERSION, crc32(body), len(body)) + body


def decode(raw: bytes) -> Frame:
    """The frame in a queue entry, or `CannotDecode` with the reason in plain words."""
    if len(raw) < HEADER_SIZE or raw[:4] != MAGIC or any(raw[5:8]):
        raise CannotDecode("not written by zkms", raw=raw)
    _, version, checksum, length = _HEADER.unpack_from(raw)
    if version != VERSION:
        raise CannotDecode(f"frame version {version}, this zkms reads {VERSION}", raw=raw)
    body = raw[HEADER_SIZE:]
    if len(body) != length:
        raise CannotDecode(f"truncated: {len(body)} of {length} bytes", raw=raw)
    if crc32(body) != checksum:
        raise CannotDecode("damaged: checksum does not match", raw=raw)
    try:
        frame = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CannotDecode(f"malformed frame: {error}", raw=raw) from error
    if not frame.messages:
        raise CannotDecode("malformed frame: no messages", raw=raw)
    return frame


def size_of(packed: Packed) -> int:
    """How many bytes a message adds to a frame."""
    return len(_encode(packed))
