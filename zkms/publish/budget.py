"""How much goes into one frame: what a transaction leaves beside the names of the entries in all queues."""

from __future__ import annotations

from collections.abc import Sequence

from zkms.publish.audience import Member
from zkms.publish.limits import MAX_PER_FRAME
from zkms.publish.packer import Budget
from zkms.zookeeper.operations import MAX_TRANSACTION

NAME = 320
"""Bytes of a transaction that an entry's name takes in one queue: an upper estimate."""


def frame_budget(members: Sequence[Member], overhead: int = 0) -> Budget:
    """Return the bytes and the messages that one frame may hold: half a transaction, or what the names in it leave.

    The names are those of the entries, one in each queue; `overhead` is what the session adds to each.
    """
    limits = [member.registration.limit for member in members]
    names = len(members) * (NAME + overhead)
    largest = max(MAX_TRANSACTION // 16, min(MAX_TRANSACTION // 2, MAX_TRANSACTION - names))
    parted = sum(m.registration.kind == "group" or m.registration.where is not None for m in members)
    return largest // max(1, parted), min([MAX_PER_FRAME, *limits])
