"""How large a frame may be: what the names of its entries in all queues leave of a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from zkms.publish.audience import Member
from zkms.publish.limits import MAX_PER_FRAME
from zkms.publish.packer import Budget
from zkms.zookeeper.operations import MAX_TRANSACTION

NAME = 320
"""The most bytes that the name of an entry takes in a transaction."""


def frame_budget(members: Sequence[Member], overhead: int = 0) -> Budget:
    """Return the most bytes and messages of one frame: half a transaction, or what the entries' names leave of it.

    Each queue has one entry; `overhead` is the number of bytes that the session adds to each.
    """
    limits = [member.registration.limit for member in members]
    names = len(members) * (NAME + overhead)
    largest = max(MAX_TRANSACTION // 16, min(MAX_TRANSACTION // 2, MAX_TRANSACTION - names))
    parted = sum(m.registration.kind == "group" or m.registration.where is not None for m in members)
    return largest // max(1, parted), min([MAX_PER_FRAME, *limits])
