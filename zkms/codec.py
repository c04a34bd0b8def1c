"""Payloads: bytes, str and anything JSON can hold arrive as what they were; other serialisers plug in.

Structured data travels as MessagePack (msgspec), which keeps what JSON keeps, and bytes and integer keys as well.
Tuples and sets arrive as lists, as they would through JSON. Nothing is ever unpickled.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from zkms.errors import CannotDecode, InvalidArgument, InvalidMessage

BYTES, TEXT, STRUCTURED = 0, 1, 2
Format: TypeAlias = int | str
"""How a payload is encoded: one of the three above, or the name of a `Codec`."""

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


@runtime_checkable
class Codec(Protocol):
    """A serialiser: `name` travels with each message, so that a reader without it fails clearly."""

    name: str

    def encode(self, data: Any) -> bytes:
        """The bytes to send; raise to refuse."""
        ...

    def decode(self, raw: bytes) -> Any:
        """What `encode` was given; raise to report the message through `on_error`."""
        ...


def check_codec(codec: Codec | None) -> Codec | None:
    """`codec` itself, or `InvalidArgument` if it is not one."""
    if codec is not None and not (isinstance(codec, Codec) and isinstance(codec.name, str) and codec.name):
        raise InvalidArgument(f"codec {codec!r:.80} needs a non-empty str `name`, `encode(data)` and `decode(raw)`")
    return codec


def pack(data: Any, codec: Codec | None = None) -> tuple[Format, bytes]:
    """A payload's format and bytes, or `InvalidMessage`."""
    if codec is not None:
        try:
            raw = codec.encode(data)
        except Exception as error:
            raise InvalidMessage(f"codec {codec.name!r} cannot encode {type(data).__name__}: {error}") from error
        if not isinstance(raw, bytes):
            raise InvalidMessage(f"codec {codec.name!r} returned {type(raw).__name__}, not bytes")
        return codec.name, raw
    if isinstance(data, (bytes, bytearray, memoryview)):
        return BYTES, bytes(data)
    try:
        return (TEXT, data.encode()) if isinstance(data, str) else (STRUCTURED, _pack(data))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidMessage(
            f"cannot encode {type(data).__name__}: {error}; give bytes, str, what JSON can hold, or a codec="
        ) from error


def unpack(format: Format, raw: bytes, type: Any = None, codec: Codec | None = None) -> Any:
    """The payload as it was given, converted to and checked against `type` if there is one; else `CannotDecode`."""
    try:
        if isinstance(format, str):
            if codec is None or codec.name != format:
                raise CannotDecode(f"encoded with codec {format!r}: subscribe with codec= to read it", raw=raw)
            value = codec.decode(raw)
            return value if type is None else msgspec.convert(value, type)
        if format == STRUCTURED:
            return _unpack(raw) if type is None else msgspec.msgpack.decode(raw, type=type)
        if format == TEXT:
            return raw.decode() if type is None else msgspec.convert(raw.decode(), type)
        if format == BYTES:
            return raw if type is None else msgspec.convert(raw, type)
    except CannotDecode:
        raise
    except Exception as error:
        raise CannotDecode(f"{type_name(type)}: {error}", raw=raw) from error
    raise CannotDecode(f"payload format {format!r} is of a newer zkms", raw=raw)


def type_name(type: Any) -> str:
    """What to call an expected type in a sentence."""
    return "undecodable payload" if type is None else f"not a {getattr(type, '__name__', type)}"
