"""Payloads: bytes, str and anything JSON can hold arrive as what they were; other serialisers plug in.

Data travels as MessagePack (msgspec), which keeps what JSON keeps, and bytes and integer keys as well. Tuples and sets
arrive as lists, as they would through JSON. Nothing is ever unpickled.
"""

from __future__ import annotations

from typing import Any

from zkms.checks import Codec
from zkms.errors import CannotDecode, InvalidMessage


def encode_with(codec: Codec, data: Any) -> bytes:
    """What the codec makes of a payload, or `InvalidMessage`."""
    try:
        raw = codec.encode(data)
    except Exception as error:
        raise InvalidMessage(f"codec {codec.name!r} cannot encode {type(data).__name__}: {error}") from error
    if not isinstance(raw, bytes):
        raise InvalidMessage(f"codec {codec.name!r} returned {type(raw).__name__}, not bytes")
    return raw


def decode_with(codec: Codec | None, name: str, raw: Any) -> Any:
    """What the codec of that name was given, or `CannotDecode`."""
    if codec is None or codec.name != name:
        raise CannotDecode(f"encoded with codec {name!r}: subscribe with codec= to read it")
    try:
        return codec.decode(raw)
    except Exception as error:
        raise CannotDecode(f"codec {name!r}: {error}") from error
