"""How much goes into one frame: what a transaction leaves beside the names of the entries in all queues."""

from __future__ import annotations

from zkms.errors import ConnectionLost
from zkms.names import check_topic
from zkms.publish.audience import Audience
from zkms.publish.limits import MAX_PER_FRAME
from zkms.zookeeper.operations import MAX_TRANSACTION

NAME = 320
"""Bytes of a transaction that an entry's name takes in one queue: an upper estimate."""


def frame_budget(audience: Audience, topic: str, deadline: float, overhead: int = 0) -> tuple[int, int]:
    """Return the bytes and the messages that one frame may hold: half a transaction, or what the names in it leave.

    The names are those of the entries, one in each queue; `overhead` is what the session adds to each.
    """
    try:
        members = audience.get(check_topic(topic), deadline).members
    except ConnectionLost as error:
        raise ConnectionLost(f"not stored: {error}", outcome_unknown=False) from error
    limits = [member.registration.limit for member in members]
    names = len(members) * (NAME + overhead)
    largest = max(MAX_TRANSACTION // 16, min(MAX_TRANSACTION // 2, MAX_TRANSACTION - names))
    parted = sum(m.registration.kind == "group" or m.registration.where is not None for m in members)
    return largest // max(1, parted), min([MAX_PER_FRAME, *limits])
