"""Durable subscriptions and groups, into a file: queues, ledgers, what is delayed, dead letters.

While a backup is made everybody may go on. Each lane is consistent by itself: it holds what was published before it
was listed and not acked when its ledger was read, in order. What live subscriptions have, remembered ids, producers'
numbers and staged jobs are not in it.

A message that becomes due while the backup is made is in it once, unless it is acked in these seconds too: then it
comes back. `restore` is the way back, `archive` the file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec

from zkms.archive import (
    DelayedRecord,
    End,
    EntryRecord,
    Header,
    LaneRecord,
    LetterRecord,
    Subscribed,
    Summary,
    Writer,
    examine,
)
from zkms.delayed import parse_bucket, parse_delayed
from zkms.discovery import Discovery
from zkms.errors import NewerLayout, NodeMissing, StoreError
from zkms.session import Session
from zkms.tree import (
    FULL_MARK,
    LAYOUT,
    Entry,
    Layout,
    Ledger,
    Part,
    Registration,
    Tree,
    decode,
    entry_prefix,
    lanes_of,
    parse_entry,
)
from zkms.version import __version__

Kept = Subscribed | LaneRecord | EntryRecord
Progress = Callable[[int], None]
QUIET: Progress = lambda _count: None  # noqa: E731
TRIES = 200
"""Looks at a lane whose reader acks all the time, until ledger and queue are seen from one moment."""
SEQUENCE = 10
"""Digits that ZooKeeper appends."""
AT_ONCE = 200


def back_up(session: Session, tree: Tree, file: Path, progress: Progress = QUIET) -> Summary:
    """Write everything that is kept into a file; `progress` hears of each record."""
    _check_tree(session, tree)
    with Writer(file) as writer:
        source = _Source(session, tree)
        writer.put(Header(LAYOUT, tree.root, __version__, time.time()))
        # What is delayed comes first: what becomes due meanwhile is then in the queues too, and not in neither.
        for record in chain(source.delayed(), source.subscriptions(), source.letters()):
            writer.put(record)
            progress(1)
        writer.put(End(writer.records))
    return examine(file)[0]


def _check_tree(session: Session, tree: Tree) -> None:
    """An empty backup of a misspelt root would be found out when it is too late."""
    try:
        layout = decode(session.get(tree.root)[0], Layout).layout
    except (NodeMissing, msgspec.MsgspecError) as error:
        raise StoreError("there is no zkms below it: nothing was backed up; check the root", path=tree.root) from error
    if layout > LAYOUT:
        raise NewerLayout(tree.root, layout, LAYOUT)


class _Source:
    """Reads the tree."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree
        self._discovery = Discovery(session, tree)
        self._strange: list[LetterRecord] = []
        """Found in queues on the way."""

    def delayed(self) -> Iterator[DelayedRecord]:
        """What is not due yet."""
        for name in self._discovery.names(self._tree.delayed):
            begins = parse_bucket(name)
            if begins is None:
                continue
            bucket = self._tree.bucket(begins)
            names = [each for each in self._discovery.names(bucket) if parse_delayed(begins, each) is not None]
            for path, data in self._read([f"{bucket}/{each}" for each in names]):
                yield DelayedRecord(begins, path.rpartition("/")[2], data)

    def subscriptions(self) -> Iterator[Kept]:
        """Durable subscriptions and groups, each with its lanes and what waits in them."""
        for topic in self._discovery.names(self._tree.subscribers):
            names = [name for name in self._discovery.names(self._tree.topic(topic)) if not name.endswith(FULL_MARK)]
            paths = [self._tree.registration(topic, name) for name in names]
            for path, (data, _) in self._discovery.ask(paths, self._session.get_async).items():
                name = path.rpartition("/")[2]
                try:
                    registration = decode(data, Registration)
                except msgspec.MsgspecError as error:
                    raise StoreError("overwritten by another program: delete it, then back up", path=path) from error
                if registration.kind == "live":
                    continue
                yield Subscribed(topic, name, registration)
                for number, lane in enumerate(lanes_of(name, registration)):
                    yield from self._lane(self._tree.queue(lane, topic), self._tree.ledger(name, topic, number), number)

    def _lane(self, queue: str, ledger: str, number: int) -> Iterator[Kept]:
        """One lane is held in memory: so much as its limits allow."""
        entries = sorted(map(parse_entry, self._discovery.names(queue)))
        found = self._data(queue, entries)
        there, parts = self._moment(queue, ledger)
        kept = [entry for entry in entries if entry.name in there and not entry.foreign]
        missing = [entry.name for entry in kept if entry.name not in found]
        if missing:
            raise StoreError(f"the body that {missing[0]} points to is missing: 'zkms doctor' tells more", path=queue)
        left = {entry.sequence: parts[entry.sequence] for entry in kept if entry.sequence in parts}
        yield LaneRecord(number, len(kept), left)
        for entry in kept:
            name, data = _inline(entry, found[entry.name])
            yield EntryRecord(entry.sequence, name, data)
        lane, topic = queue.split("/")[-2:]  # what is foreign its reader would set aside: so do we
        strange = [entry.name for entry in entries if entry.foreign and entry.name in there]
        self._strange += [LetterRecord(lane, topic, name, found[name]) for name in strange]

    def _data(self, queue: str, entries: list[Entry]) -> dict[str, bytes]:
        """What is in the entries, or in the bodies that they point to; those acked meanwhile are left out."""
        carriers = {entry.name: b"" for entry in entries if entry.carrier}
        paths = {
            entry.name: f"{queue}/{entry.name}" if entry.body is None else self._tree.body(*entry.body)
            for entry in entries
            if not entry.carrier
        }
        read = self._discovery.ask(paths, lambda name: self._session.get_async(paths[name]))
        return carriers | {name: data for name, (data, _) in read.items()}

    def _moment(self, queue: str, ledger: str) -> tuple[set[str], dict[int, Part]]:
        """The names in a queue and the ledger's parts, from one moment: every ack writes the ledger."""
        for attempt in range(TRIES):
            read, listed = partial(self._session.get_async, ledger), partial(self._session.children_async, queue)
            first, second, third = read(), listed(), read()  # answered in this order
            try:
                data, before = self._session.answer(first, read)
                names, _ = self._session.answer(second, listed)
                _, after = self._session.answer(third, read)
            except NodeMissing:
                return set(), {}  # given up meanwhile, or its reader makes it anew
            if before.version == after.version:
                try:
                    return set(names), dict(decode(data, Ledger).parts)
                except msgspec.MsgspecError as error:
                    raise StoreError(f"overwritten by another program: {error}", path=ledger) from error
            time.sleep(0.001 * attempt)
        raise StoreError("its reader acks all the time, and no quiet moment was found: try again", path=queue)

    def letters(self) -> Iterator[LetterRecord]:
        """Dead letters, and what was set aside or should have been."""
        yield from self._strange
        for shelf in self._discovery.names(self._tree.dead):
            for topic in self._discovery.names(f"{self._tree.dead}/{shelf}"):
                parent = self._tree.dead_queue(shelf, topic)
                names = sorted(self._discovery.names(parent), key=lambda name: name[-SEQUENCE:])
                for path, data in self._read([f"{parent}/{name}" for name in names]):
                    yield LetterRecord(shelf, topic, path.rpartition("/")[2], data)

    def _read(self, paths: list[str]) -> Iterator[tuple[str, bytes]]:
        """A few hundred at a time: that much is held in memory."""
        for start in range(0, len(paths), AT_ONCE):
            read = self._discovery.ask(paths[start : start + AT_ONCE], self._session.get_async)
            yield from ((path, data) for path, (data, _) in read.items())


def _inline(entry: Entry, data: bytes) -> tuple[str, bytes]:
    """The name but for the sequence, and the data: what was pointed to is now in the entry."""
    if entry.body is None:
        return entry.name[:-SEQUENCE], data
    return entry_prefix(entry.messages, len(data), priority=entry.priority, expires=entry.expires), data
