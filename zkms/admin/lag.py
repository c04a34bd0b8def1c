"""Measures the backlog of queues: messages, those that wait for another attempt, and the age of the oldest.

The name of an entry says how many messages it holds, so listing a queue is enough. ZooKeeper can only list a queue as a
whole, so there is a budget, and the longest queues are not listed: only their number of entries is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from zkms.tree.entry import Entry, parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import Ledger, Part
from zkms.zookeeper.recipes import count_created, count_deleted, read_many, stats_of
from zkms.zookeeper.session import Session, Stat

BUDGET = 50_000
"""The most entries that one call lists: as many as one queue can hold."""

PLACES = (0, 1, 4, 16, 64, 256)
"""Indexes of the entries whose age is read: the first ones may be acked before the request arrives."""

QueueKey = tuple[str, str]
"""Its name and its topic."""


class Backlog(msgspec.Struct, frozen=True):
    """The contents of a queue; all but `entries` is None if it was too long to be listed."""

    entries: int = 0
    messages: int | None = None
    delayed: int | None = None
    """Messages that failed and wait for another attempt."""
    age: float | None = None
    """Age of the oldest entry in seconds; None if there is none."""


class QueueCounts(NamedTuple):
    """Entries that were stored in a queue and removed from it since its creation."""

    stored: int
    removed: int


def flow(stat: Stat) -> QueueCounts:
    """Return how many entries were ever stored and removed, by the queue's Stat."""
    return QueueCounts(count_created(stat), count_deleted(stat))


def measure(
    session: Session,
    tree: Tree,
    queues: Mapping[QueueKey, Stat],
    ledgers: Mapping[QueueKey, Ledger],
    budget: int = BUDGET,
) -> dict[QueueKey, Backlog]:
    """Return the backlog of each queue; the shortest queues are listed first, as long as the budget lasts."""
    found = {queue: Backlog(stat.numChildren) for queue, stat in queues.items()}
    listed = read_many(session, _affordable(queues, budget), lambda queue: session.children_async(tree.queue(*queue)))
    now = time.time()
    first: list[tuple[QueueKey, str]] = []
    for queue, (names, _) in listed.items():
        entries = [entry for entry in map(parse_entry, names) if not (entry.foreign or entry.gap)]
        parts = ledgers[queue].parts if queue in ledgers else {}
        found[queue] = Backlog(len(names), unacked_messages(entries, parts), _delayed(entries, parts, now))
        ordered = sorted(entries)
        first += [(queue, ordered[place].name) for place in PLACES if place < len(ordered)]
    for (queue, _), stat in stats_of(session, first, lambda entry: f"{tree.queue(*entry[0])}/{entry[1]}").items():
        age = max(found[queue].age or 0.0, now - stat.ctime / 1000)
        found[queue] = msgspec.structs.replace(found[queue], age=age)
    return found


def _affordable(queues: Mapping[QueueKey, Stat], budget: int) -> list[QueueKey]:
    chosen = []
    for queue, stat in sorted(queues.items(), key=lambda item: item[1].numChildren):
        budget -= stat.numChildren
        if budget < 0:
            break
        chosen.append(queue)
    return chosen


def unacked_messages(entries: Iterable[Entry], parts: Mapping[int, Part]) -> int:
    """Return the number of messages of these entries that are not acked, by the parts of the ledger."""
    return sum(
        max(0, entry.messages - (parts[entry.sequence].count if entry.sequence in parts else 0)) for entry in entries
    )


def _delayed(entries: Iterable[Entry], parts: Mapping[int, Part], now: float) -> int:
    there = {entry.sequence for entry in entries}
    return sum(
        tried.due > now for sequence, part in parts.items() if sequence in there for tried in part.tries.values()
    )
