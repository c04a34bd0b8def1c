"""Keys of a cache: None, bool, int, float, str, bytes, and tuples of those.

An invalidation has to name the same value on every node, so encoding must preserve a key. Derived types (IntEnum, a
subclass of str) are reduced to their base; other types are refused. Keys that are equal in Python (1, 1.0 and True) are
one key, as in a dict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from zkms.errors import InvalidArgument

Key = Any
"""None, bool, int, float, str, bytes, or a tuple of those."""
MAX_BYTES = 16 * 1024
"""The most bytes of an encoded key; a longer one should be hashed."""
MAX_DEPTH = 16
_BASES: tuple[type, ...] = (bool, int, float, str, bytes)  # bool first: it is an int too
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


class InvalidKey(InvalidArgument):
    """A cache key that could not name the same value on another node."""

    def __init__(self, key: object, reason: str) -> None:
        try:
            shown = f"{key!r:.80}"
        except Exception:  # noqa: BLE001 - the key's own repr may raise anything
            shown = f"of type {type(key).__name__}"
        super().__init__(
            f"invalid cache key {shown}: {reason}; a key is None, bool, int, float, str, bytes or a tuple of those"
        )
        self.key = key


def check_key(key: object) -> Key:
    """Return the key reduced to plain types, or raise `InvalidKey`."""
    plain = _reduce(key, key, 0)
    try:
        size = len(encode_key(plain))
    except UnicodeEncodeError as error:
        raise InvalidKey(key, "it holds a str that UTF-8 cannot hold") from error
    if size > MAX_BYTES:
        raise InvalidKey(key, f"it takes {size:,} bytes, more than {MAX_BYTES:,}: use a hash of it")
    return plain


def check_tags(tags: str | Iterable[str]) -> tuple[str, ...]:
    """Return tags as a tuple of plain str; a single tag may be a str."""
    given = (tags,) if isinstance(tags, str) else tags
    if not isinstance(given, Iterable):
        raise InvalidArgument(f"tags: give str, not {given!r:.60}")
    names = tuple(given)
    for tag in names:
        if not isinstance(tag, str) or not tag:
            raise InvalidArgument(f"a tag is a non-empty str, not {tag!r:.60}")
        check_key(tag)
    return tuple(str.__str__(tag) for tag in names)


def _reduce(part: object, key: object, depth: int) -> Key:
    if part is None or type(part) in (int, str, bytes, bool):
        return part
    if isinstance(part, tuple):
        if depth >= MAX_DEPTH:
            raise InvalidKey(key, f"tuples in it are nested deeper than {MAX_DEPTH}")
        return tuple(_reduce(each, key, depth + 1) for each in tuple.__iter__(part))
    for base in _BASES:
        if isinstance(part, base):
            if base is float and math.isnan(part):  # type: ignore[arg-type]
                raise InvalidKey(key, "NaN is not equal to itself")
            return _as(base, part)
    raise InvalidKey(key, f"it holds a {type(part).__name__}")


def _as(base: type, part: Any) -> Key:
    """Return the value as its base type, without the conversions of a derived type."""
    if base is str:
        return str.__str__(part)
    if base is bytes:
        return bytes.__getitem__(part, slice(None)) if type(part) is not bytes else part
    if base is float:
        return float.__add__(part, 0.0)
    return int.__add__(part, 0) if base is int else bool(part)


def encode_key(key: Key) -> bytes:
    """Encode a plain key; equal keys of the same types have the same bytes."""
    return _encoder.encode(_outward(key))


def decode_key(raw: bytes) -> Key:
    """Decode the bytes of `encode_key`."""
    return _inward(_decoder.decode(raw))


def _outward(part: Key) -> Any:
    if type(part) is int and not -(2**63) <= part < 2**64:
        return {"int": hex(part)}  # MessagePack's integers have 64 bits, Python's have no end
    return [_outward(each) for each in part] if type(part) is tuple else part


def _inward(part: Any) -> Key:
    if isinstance(part, dict):
        return int(part["int"], 16)
    return tuple(_inward(each) for each in part) if isinstance(part, list) else part
