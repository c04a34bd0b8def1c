"""Writes durable subscriptions and groups into a file: queues, ledgers, delayed messages, dead letters.

Everybody may go on while a backup is made. Each partition is consistent by itself: it holds, in order, what was
published before it was listed and not acked when its ledger was read. Live subscriptions, remembered ids, the numbers
of producers and staged jobs are not in it.

What moves meanwhile is not lost. Delayed messages are listed first and read last: one that is missing by then has
become due, and the partitions that it is for are looked at again. Dead letters are read first and last, for those that
are requeued or made in these seconds. What cannot be read is left out, and counted.

`restore` reads the file back, `archive` defines it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from zkms.backup.archive import (
    DeadLetterRecord,
    DelayedRecord,
    End,
    EntryRecord,
    Header,
    LateRecord,
    PartitionRecord,
    Subscribed,
    Writer,
)
from zkms.backup.verify import BackupSummary, examine
from zkms.errors import CannotDecode, NewerLayout, NodeMissing, StoreError, Unauthorised
from zkms.message import frame as frames
from zkms.names import FULL_MARK, is_pattern, matches
from zkms.tree.delayed_names import Delayed, parse_bucket, parse_delayed
from zkms.tree.entry import Entry, carried, entry_prefix, parse_entry
from zkms.tree.paths import LAYOUT, Tree, queues_of
from zkms.tree.records import Layout, Ledger, Part, Registration, decode, read_record
from zkms.version import __version__
from zkms.zookeeper.recipes import children_of, read_many
from zkms.zookeeper.session import Session

Kept = Subscribed | PartitionRecord | EntryRecord | LateRecord | DelayedRecord | DeadLetterRecord
Progress = Callable[[int], None]
QUIET: Progress = lambda _count: None  # noqa: E731
TRIES = 200
"""Looks at a partition whose reader acks all the time, until ledger and queue are seen from one moment."""
SEQUENCE = 10
"""Digits that ZooKeeper appends."""
AT_ONCE = 200
NAMED = 20
"""Of the znodes that cannot be read."""
B = TypeVar("B")


def back_up(session: Session, tree: Tree, file: Path, progress: Progress = QUIET) -> BackupSummary:
    """Write everything that a backup holds into a file; `progress` is called for each record."""
    _check_tree(session, tree)
    with Writer(file) as writer:
        source = _Source(session, tree)
        writer.put(Header(LAYOUT, tree.root, __version__, time.time()))
        for record in source.records():
            writer.put(record)
            progress(1)
        unreadable = sorted(source.unreadable)
        writer.put(End(writer.records, len(unreadable), tuple(unreadable[:NAMED])))
    return examine(file).summary


def _check_tree(session: Session, tree: Tree) -> None:
    """Refuse a root without a tree: an empty backup of a misspelt root would be noticed too late."""
    try:
        layout = decode(session.get(tree.root)[0], Layout).layout
    except (NodeMissing, msgspec.MsgspecError) as error:
        raise StoreError("there is no zkms below it: nothing was backed up; check the root", path=tree.root) from error
    if layout > LAYOUT:
        raise NewerLayout(tree.root, layout, LAYOUT)


class _Partition(NamedTuple):
    """A partition of a durable subscription or a group, and where it is."""

    topic: str
    subscription: str
    number: int
    queue: str
    ledger: str


class _Seen(NamedTuple):
    """What was in a partition at one moment, in order, how far it is acked, and what was there and is not ours."""

    entries: list[Entry]
    parts: dict[int, Part]
    strange: list[Entry]
    data: dict[str, bytes]


class _Source:
    """Reads the tree."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self.unreadable: set[str] = set()
        """Paths that we are not allowed to read."""
        self._session = session
        self._tree = tree
        self._strange: list[DeadLetterRecord] = []
        """What is not ours, found in queues."""
        self._partitions: dict[_Partition, int] = {}
        """Partitions that were read, and the highest number in each."""
        self._written: set[tuple[str, str, str]] = set()
        """Dead letters that are in the file."""

    def records(self) -> Iterator[Kept]:
        """Everything, in an order in which nothing that moves is missed."""
        waiting = set(self._waiting())
        yield from chain(self.dead_letters(), self.subscriptions())
        for record in self.delayed():
            waiting.discard((record.bucket, record.name))
            yield record
        yield from self.late([item for each in waiting if (item := parse_delayed(*each)) is not None])
        yield from self.dead_letters()
        yield from self._strange

    # -- what is delayed -----------------------------------------------------------------------------------------

    def delayed(self) -> Iterator[DelayedRecord]:
        """What is not due yet."""
        for path, data in self._read([f"{self._tree.bucket(begins)}/{name}" for begins, name in self._waiting()]):
            bucket, name = path.split("/")[-2:]
            yield DelayedRecord(int(bucket), name, data)

    def _waiting(self) -> Iterator[tuple[int, str]]:
        for bucket in self._names(self._tree.delayed):
            begins = parse_bucket(bucket)
            if begins is not None:
                names = self._names(self._tree.bucket(begins))
                yield from ((begins, name) for name in names if parse_delayed(begins, name) is not None)

    def late(self, due: list[Delayed]) -> Iterator[LateRecord]:
        """What became due after it was listed, from those partitions that were read before that and still have it."""
        topics = {item.topic for item in due}
        frames_due = {(item.producer, item.number) for item in due}
        for partition, last in self._partitions.items():
            if not any(_is_for(partition.topic, topic) for topic in topics):
                continue
            seen = self._look(partition)
            for entry in seen.entries:
                if entry.sequence > last and _frame(entry, seen.data[entry.name]) in frames_due:
                    name, data = _inline(entry, seen.data[entry.name])
                    part = seen.parts.get(entry.sequence)
                    yield LateRecord(*partition[:3], entry.sequence, name, data, part)

    # -- subscriptions -------------------------------------------------------------------------------------------

    def subscriptions(self) -> Iterator[Subscribed | PartitionRecord | EntryRecord]:
        """Durable subscriptions and groups, each with its partitions and what waits in them."""
        for topic in self._names(self._tree.subscribers):
            names = [name for name in self._names(self._tree.topic(topic)) if not name.endswith(FULL_MARK)]
            paths = [self._tree.registration(topic, name) for name in names]
            for path, (data, _) in self._ask(paths, self._session.get_async).items():
                name = path.rpartition("/")[2]
                registration = read_record(data, Registration, path, "delete it, then back up")
                if registration.kind == "live":
                    continue
                yield Subscribed(topic, name, registration)
                for number, queue in enumerate(queues_of(name, registration)):
                    ledger = self._tree.ledger(name, topic, number)
                    yield from self._partition(_Partition(topic, name, number, self._tree.queue(queue, topic), ledger))

    def _partition(self, partition: _Partition) -> Iterator[PartitionRecord | EntryRecord]:
        """One partition is in memory at a time: as much as its limits allow."""
        seen = self._look(partition)
        self._partitions[partition] = max((entry.sequence for entry in seen.entries), default=-1)
        yield PartitionRecord(partition.number, len(seen.entries), seen.parts)
        for entry in seen.entries:
            yield EntryRecord(entry.sequence, *_inline(entry, seen.data[entry.name]))
        shelf = partition.queue.split("/")[-2]  # what is foreign its reader would set aside: so do we
        self._strange += [
            DeadLetterRecord(shelf, partition.topic, each.name, seen.data[each.name]) for each in seen.strange
        ]

    def _look(self, partition: _Partition) -> _Seen:
        entries = sorted(map(parse_entry, self._names(partition.queue)))
        found = self._data(partition.queue, entries)
        there, parts = self._moment(partition.queue, partition.ledger)
        refused = {entry.name for entry in entries if self._path(partition.queue, entry) in self.unreadable}
        left = [entry for entry in entries if entry.name in there and entry.name not in refused]
        kept = [entry for entry in left if not entry.foreign]
        missing = [entry.name for entry in kept if entry.name not in found]
        if missing:
            raise StoreError(
                f"the body that {missing[0]} points to is missing: 'zkms doctor' tells more", path=partition.queue
            )
        known = {entry.sequence: parts[entry.sequence] for entry in kept if entry.sequence in parts}
        return _Seen(kept, known, [entry for entry in left if entry.foreign], found)

    def _data(self, queue: str, entries: list[Entry]) -> dict[str, bytes]:
        """What is in the entries, or in the bodies that they point to; those acked meanwhile are left out."""
        carriers = {entry.name: b"" for entry in entries if entry.carrier}
        paths = {entry.name: self._path(queue, entry) for entry in entries if not entry.carrier}
        read = self._ask({*paths.values()}, self._session.get_async)  # two may point to one body
        return carriers | {name: read[path][0] for name, path in paths.items() if path in read}

    def _path(self, queue: str, entry: Entry) -> str:
        """The path of what an entry holds."""
        return f"{queue}/{entry.name}" if entry.body is None else self._tree.body(*entry.body)

    def _moment(self, queue: str, ledger: str) -> tuple[set[str], dict[int, Part]]:
        """The names in a queue and the ledger's parts, from one moment: every ack writes the ledger."""
        for attempt in range(TRIES):
            read, listed = partial(self._session.get_async, ledger), partial(self._session.children_async, queue)
            first, second, third = read(), listed(), read()  # answered in this order
            try:
                data, before = self._session.answer(first, read)
                names, _ = self._session.answer(second, listed)
                _, after = self._session.answer(third, read)
            except Unauthorised:
                self.unreadable.add(ledger)
                return set(), {}
            except NodeMissing:
                return set(), {}  # given up meanwhile, or its reader makes it anew
            if before.version == after.version:
                return set(names), dict(read_record(data, Ledger, ledger).parts)
            time.sleep(0.001 * attempt)
        raise StoreError("its reader acks all the time, and no quiet moment was found: try again", path=queue)

    # -- dead letters --------------------------------------------------------------------------------------------

    def dead_letters(self) -> Iterator[DeadLetterRecord]:
        """Dead letters and what was set aside, but for those that are in the file."""
        for shelf in self._names(self._tree.dead):
            for topic in self._names(f"{self._tree.dead}/{shelf}"):
                parent = self._tree.dead_queue(shelf, topic)
                names = sorted(self._names(parent), key=lambda name: name[-SEQUENCE:])
                paths = [f"{parent}/{name}" for name in names if (shelf, topic, name) not in self._written]
                for path, data in self._read(paths):
                    name = path.rpartition("/")[2]
                    self._written.add((shelf, topic, name))
                    yield DeadLetterRecord(shelf, topic, name, data)

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self, paths: list[str]) -> Iterator[tuple[str, bytes]]:
        """Read some hundreds at a time: that much is in memory."""
        for start in range(0, len(paths), AT_ONCE):
            read = self._ask(paths[start : start + AT_ONCE], self._session.get_async)
            yield from ((path, data) for path, (data, _) in read.items())

    def _ask(self, paths: Iterable[str], ask: Callable[[str], Future[B]]) -> dict[str, B]:
        """Pipelined answers; what is gone is left out, and what we are not allowed to read, which is noted."""
        return read_many(self._session, paths, ask, self._note)

    def _names(self, path: str) -> list[str]:
        """The children of a znode, sorted; none if it does not exist, or cannot be listed."""
        try:
            return children_of(self._session, path)
        except Unauthorised as error:
            self._note(path, error)
            return []

    def _note(self, path: str, error: StoreError) -> None:
        if not isinstance(error, Unauthorised):
            raise error
        self.unreadable.add(path)


def _is_for(wanted: str, topic: str) -> bool:
    """Whether a subscription gets what is published to a topic."""
    return wanted == topic or (is_pattern(wanted) and matches(wanted, topic))


def _frame(entry: Entry, data: bytes) -> tuple[str, int] | None:
    """Whose frame it is, and its number; None if it is none that we can read."""
    try:
        frame = frames.decode(carried(entry.name) if entry.carrier else data)
    except CannotDecode:
        return None
    return frame.producer, frame.seq


def _inline(entry: Entry, data: bytes) -> tuple[str, bytes]:
    """The name but for the sequence, and the data: what was pointed to is now in the entry."""
    if entry.body is None:
        return entry.name[:-SEQUENCE], data
    return entry_prefix(entry.messages, len(data), priority=entry.priority, expires=entry.expires), data
