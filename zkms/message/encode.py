"""From what a caller gives to a message that can travel."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from zkms.checks import Codec
from zkms.errors import InvalidMessage
from zkms.message import frame as frames
from zkms.message.codec import encode_with
from zkms.message.frame import Packed
from zkms.tree.entry import MAX_PRIORITY

MAX_TTL = 10 * 365 * 86_400
"""Seconds: ten years."""


def pack(
    data: Any,
    key: str | None,
    headers: Mapping[str, str] | None,
    id: str | None,
    codec: Codec | None,
    *,
    priority: int = 0,
    ttl: float | None = None,
) -> Packed:
    """One message, checked and encoded; `InvalidMessage` if it is none."""
    if priority.__class__ is not int or not 0 <= priority <= MAX_PRIORITY:
        raise InvalidMessage(f"priority must be a whole number from 0 to {MAX_PRIORITY}, not {priority!r:.60}")
    if ttl is not None and (not isinstance(ttl, (int, float)) or not 0 < ttl <= MAX_TTL):
        raise InvalidMessage(f"ttl must be a number of seconds above 0 and at most {MAX_TTL:,}, not {ttl!r:.60}")
    expires = 0.0 if ttl is None else time.time() + ttl
    if key is not None and not _is_text(key):
        raise InvalidMessage(f"key must be a str that UTF-8 can hold, not {key!r:.60}")
    if id is not None and not _is_text(id):
        raise InvalidMessage(f"id must be a str that UTF-8 can hold, not {id!r:.60}")
    if headers is not None and not (
        isinstance(headers, Mapping) and all(_is_text(k) and _is_text(v) for k, v in headers.items())
    ):
        raise InvalidMessage("headers: give a mapping whose names and values are str that UTF-8 can hold")
    if codec is not None:
        data = encode_with(codec, data)
    name = None if codec is None else codec.name
    return frames.pack(data, key, dict(headers) if headers else None, id, name, expires, priority)


def _is_text(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
