"""From what a caller gives to a message that can travel, and how many of those go into one frame."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from zkms.errors import ConnectionLost, InvalidMessage
from zkms.message import frame as frames
from zkms.message.codec import Codec, encode_with
from zkms.message.frame import Packed
from zkms.names import check_topic
from zkms.publish.audience import Audience
from zkms.publish.limits import MAX_PER_FRAME
from zkms.tree.entry import MAX_PRIORITY
from zkms.zookeeper.operations import MAX_TRANSACTION

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


NAME = 320
"""Bytes that the name in one queue takes of a transaction, at the most and about."""


def frame_budget(membership: Audience, topic: str, deadline: float, overhead: int = 0) -> tuple[int, int]:
    """Bytes and messages for one frame: half of what fits, or what is left by the names in the queues.

    `overhead` is the session's for each of these.
    """
    try:
        members = membership.get(check_topic(topic), deadline).members
    except ConnectionLost as error:
        raise ConnectionLost(f"not stored: {error}", outcome_unknown=False) from error
    limits = [member.registration.limit for member in members]
    names = len(members) * (NAME + overhead)
    largest = max(MAX_TRANSACTION // 16, min(MAX_TRANSACTION // 2, MAX_TRANSACTION - names))
    parted = sum(m.registration.kind == "group" or m.registration.where is not None for m in members)
    return largest // max(1, parted), min([MAX_PER_FRAME, *limits])
