"""Reads the first entries of a queue without removing them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from zkms.errors import CannotDecode, NodeMissing, ZkmsError
from zkms.message import frame as frames
from zkms.message.frame import Frame
from zkms.tree.entry import Entry, carried, parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import GapRecord, decode
from zkms.zookeeper.recipes import children_of
from zkms.zookeeper.session import Session

HUGE = 50_000
"""A queue with more entries is listed only if forced: ZooKeeper lists all of them at once."""


class QueueTooLong(ZkmsError):
    """A queue has so many entries that listing it may slow ZooKeeper down for everybody."""

    def __init__(self, entries: int) -> None:
        super().__init__(f"the queue has {entries:,} entries, and ZooKeeper can only list all of them at once")
        self.entries = entries


class PeekedEntry(NamedTuple):
    """An entry of a queue."""

    entry: Entry
    kind: Literal["frame", "gap", "garbage"]
    raw: bytes
    """Its data, or the body that it points to."""
    reason: str = ""
    """The reason of a gap, or why garbage is no frame."""
    frame: Frame | None = None


class Peeked(NamedTuple):
    """The first entries of a queue, and the number of all its entries."""

    waiting: int
    entries: list[PeekedEntry]


def peek(session: Session, tree: Tree, subscription: str, topic: str, limit: int, *, force: bool = False) -> Peeked:
    """Return the first `limit` entries of a queue; `NodeMissing` without a queue, `QueueTooLong` unless forced."""
    queue = tree.queue(subscription, topic)
    stat = session.exists(queue)
    if stat is None:
        raise NodeMissing("there is no such queue", path=queue)
    if stat.numChildren > HUGE and not force:
        raise QueueTooLong(stat.numChildren)
    names = children_of(session, queue)
    found: list[PeekedEntry] = []
    for entry in sorted(map(parse_entry, names)):
        if len(found) == limit:
            break
        try:
            raw, _ = session.get(f"{queue}/{entry.name}" if entry.body is None else tree.body(*entry.body))
        except NodeMissing:
            if entry.body is None or session.exists(f"{queue}/{entry.name}") is None:
                continue  # acked since it was listed
            raw = b""
        found.append(_describe(entry, carried(entry.name) if entry.carrier else raw))
    return Peeked(len(names), found)


def _describe(entry: Entry, raw: bytes) -> PeekedEntry:
    try:
        if entry.foreign:
            raise CannotDecode("not a name that zkms gives")
        if entry.body is not None and not raw:
            raise CannotDecode("the body it points to is missing")
        if entry.gap:
            return PeekedEntry(entry, "gap", raw, decode(raw, GapRecord).reason)
        return PeekedEntry(entry, "frame", raw, frame=frames.decode(raw))
    except (CannotDecode, msgspec.MsgspecError) as error:
        return PeekedEntry(entry, "garbage", raw, str(error))
