"""Which messages of a frame go to which queues: by partition and by header.

Decided once, by the publisher. A live or durable subscription gets every message; one with a selector gets those whose
headers fit; a group gets each message in one of its partitions: that of its key, `crc32(key) % partitions`, so that all
messages of a key are read by one member, in order. Messages without a key go wherever there is room: the partitions
take turns, a run of messages at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from zkms.message.frame import Packed
from zkms.publish.audience import Member
from zkms.tree.paths import queue_of

RUN = 64
"""Messages without a key that go to the same partition before it is the next one's turn, if so many come at once."""


class QueueTarget(NamedTuple):
    """A lane that gets a frame, or a part of it."""

    lane: str
    member: Member
    picks: tuple[int, ...] | None = None
    """The places of the messages that it gets; None for all of them."""

    @property
    def queue(self) -> tuple[str, str]:
        """The lane, and the topic or pattern whose queue it is."""
        return self.lane, self.member.topic

    def name_for(self, topic: str) -> str:
        """As receipts call it: a named subscription may have the topic, and a pattern that stands for it."""
        return self.lane if self.member.topic == topic else f"{self.lane} ({self.member.topic})"


def partition_of(key: str, partitions: int) -> int:
    """The partition of all messages with this key."""
    return crc32(key.encode()) % partitions


def route(members: Sequence[Member], packed: Sequence[Packed], turn: int, without: frozenset[int]) -> list[QueueTarget]:
    """Who gets what; `turn` moves the messages without a key on, `without` are places that nobody gets."""
    targets = []
    everything = [place for place in range(len(packed)) if place not in without] if without else range(len(packed))
    for member in members:
        registration = member.registration
        wanted = everything
        if registration.where is not None:
            wanted = [place for place in everything if _fits(packed[place].headers, registration.where)]
        if registration.kind == "group":
            targets += _spread(member, packed, wanted, turn)
        elif wanted:
            targets.append(QueueTarget(member.subscription, member, _picks(wanted, packed)))
    return targets


def _picks(places: Sequence[int], packed: Sequence[Packed]) -> tuple[int, ...] | None:
    return None if len(places) == len(packed) else tuple(places)


def _spread(member: Member, packed: Sequence[Packed], places: Sequence[int], turn: int) -> list[QueueTarget]:
    partitions = member.registration.partitions
    shares: dict[int, list[int]] = {}
    loose = 0
    for place in places:
        key = packed[place].key
        if key is None:
            number = (turn + loose // RUN) % partitions
            loose += 1
        else:
            number = partition_of(key, partitions)
        shares.setdefault(number, []).append(place)
    return [
        QueueTarget(queue_of(member.subscription, number), member, _picks(share, packed))
        for number, share in sorted(shares.items())
    ]


def _fits(headers: dict[str, str] | None, where: dict[str, list[str]]) -> bool:
    return headers is not None and all(headers.get(name) in values for name, values in where.items())
