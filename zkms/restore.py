"""A backup's way back: queues and ledgers, what is delayed, dead letters.

The queues are filled first and the subscription is registered last, together with its ledgers: nobody reads a part of
it, and what is published afterwards comes behind what is restored. Each transaction writes its queue at the version
that the last one left, so a lost reply puts nothing there twice, and a cleaner that removes it meanwhile is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from zkms.archive import DelayedRecord, EntryRecord, LaneRecord, LetterRecord, Subscribed, examine, records
from zkms.backup import QUIET, SEQUENCE, Progress
from zkms.delay import Delays
from zkms.delayed import parse_bucket, parse_delayed
from zkms.discovery import Discovery
from zkms.enrolment import Enrolment
from zkms.errors import BadVersion, ConnectionLost, NodeExists, StoreError, TransactionFailed, ZkmsError
from zkms.layout import ensure_tree
from zkms.operations import MAX_TRANSACTION, Create, Operation, SetData, transaction_size
from zkms.purge import delete_queue
from zkms.session import Session, failed_with
from zkms.tree import Ledger, QueueState, Tree, encode, lanes_of

BATCH = 500
BATCH_BYTES = MAX_TRANSACTION // 2
_LETTER = re.compile(r"d\.1\.\d{1,9}\.\d{10}", re.ASCII)


class RootInUse(ZkmsError):
    """There are subscriptions, delayed messages or dead letters below the root already; nothing was restored."""

    def __init__(self, root: str, what: str) -> None:
        super().__init__(
            f"{root} is not empty, it has {what}; nothing was restored: take another root, or add to it: --add"
        )
        self.root = root


class Restored(msgspec.Struct):
    """What came of a restore."""

    subscriptions: int = 0
    entries: int = 0
    delayed: int = 0
    letters: int = 0
    kept: list[str] = []
    """Subscriptions that were there already, and were left as they are."""


def restore(
    session: Session, tree: Tree, file: Path, *, add: bool = False, client: str = "restore", progress: Progress = QUIET
) -> Restored:
    """Put back what is in the file; `RootInUse` where anything is kept already, unless it may be added to.

    Subscriptions that exist are left as they are, and named; so a restore that was cut short can be run again.
    """
    _, twice = examine(file)
    ensure_tree(session, tree)
    if session.rights is not None:  # whoever restores would own it
        raise StoreError(
            "has separate roles, and what is restored could not be given to its subscribers", path=tree.root
        )
    if not add and (what := _in_use(session, tree)):
        raise RootInUse(tree.root, what)
    target = _Target(session, tree, client, progress)
    target.put_letters(record for record in records(file) if isinstance(record, LetterRecord))
    target.put_subscriptions(
        record for record in records(file) if isinstance(record, Subscribed | LaneRecord | EntryRecord)
    )
    # Last: what is overdue is moved at once, to those who subscribe.
    target.put_delayed((record for record in records(file) if isinstance(record, DelayedRecord)), twice)
    return target.done


def _in_use(session: Session, tree: Tree) -> str:
    discovery = Discovery(session, tree)
    groups = discovery.names(tree.groups)
    if groups:
        return f"the subscription {groups[0]!r}"
    buckets = [begins for name in discovery.names(tree.delayed) if (begins := parse_bucket(name)) is not None]
    if any(discovery.names(tree.bucket(begins)) for begins in buckets):
        return "delayed messages"
    return "dead letters" if discovery.names(tree.dead) else ""


class _Target:
    """Writes the tree."""

    def __init__(self, session: Session, tree: Tree, client: str, progress: Progress) -> None:
        self.done = Restored()
        self._session = session
        self._tree = tree
        self._client = client
        self._progress = progress
        self._enrolment = Enrolment(session, tree, client)
        self._delays = Delays(session, tree)

    # -- subscriptions -------------------------------------------------------------------------------------------

    def put_subscriptions(self, found: Iterable[Subscribed | LaneRecord | EntryRecord]) -> None:
        """Each: its queues with what waits in them, then all that makes it known."""
        whose: Subscribed | None = None
        ledgers: list[Ledger] = []
        lane: _Lane | None = None
        for record in found:
            if isinstance(record, Subscribed):
                self._finish(whose, ledgers, lane)
                ledgers, lane = [], None
                whose = None if self._is_there(record) else record
            elif whose is not None and isinstance(record, LaneRecord):
                if lane is not None:
                    ledgers.append(lane.finish())
                name = lanes_of(whose.name, whose.registration)[record.partition]
                lane = _Lane(self._session, self._tree.queue(name, whose.topic), record, self._client)
            elif lane is not None and isinstance(record, EntryRecord):
                lane.put(record)
                self.done.entries += 1
            self._progress(1)
        self._finish(whose, ledgers, lane)

    def _is_there(self, record: Subscribed) -> bool:
        if self._enrolment.find(record.topic, record.name) is None:
            return False
        self.done.kept.append(f"{record.name} of {record.topic}")
        return True

    def _finish(self, whose: Subscribed | None, ledgers: list[Ledger], lane: _Lane | None) -> None:
        if whose is None:
            return
        if lane is not None:
            ledgers.append(lane.finish())
        self._enrolment.make_topic(whose.topic)
        _, made = self._enrolment.enrol(whose.topic, whose.name, whose.registration, ledgers)
        if not made:
            raise StoreError(f"{whose.name!r} of {whose.topic!r} was made by somebody else meanwhile: stop that one")
        self.done.subscriptions += 1

    # -- the rest ------------------------------------------------------------------------------------------------

    def put_letters(self, found: Iterable[LetterRecord]) -> None:
        """On their shelves, before anybody could add to them; one that is there already is left as it is."""
        counts: dict[str, int] = {}
        for record in found:
            shelf = self._tree.dead_queue(record.shelf, record.topic)
            if shelf not in counts:
                _make(self._session, shelf.rpartition("/")[0])
                counts[shelf] = 0 if _make(self._session, shelf) else -1
            if counts[shelf] < 0:
                continue
            if _LETTER.fullmatch(record.name):
                self._append(shelf, record, counts[shelf])
            else:
                _make(self._session, f"{shelf}/{record.name}", record.data)
            counts[shelf] += 1
            self.done.letters += 1
            self._progress(1)

    def _append(self, shelf: str, record: LetterRecord, count: int) -> None:
        while True:
            try:
                self._session.multi([Create(f"{shelf}/{record.name[:-SEQUENCE]}", record.data, sequence=True)])
                return
            except ConnectionLost as error:
                if not error.outcome_unknown:
                    raise
                stat = self._session.exists(shelf)
                if stat is not None and stat.numChildren > count:
                    return  # by the attempt whose answer was lost

    def put_delayed(self, found: Iterable[DelayedRecord], twice: set[tuple[str, int]]) -> None:
        """Where they wait until they are due, but for those that are in a queue of the backup as well."""
        for record in found:
            item = parse_delayed(record.bucket, record.name)
            if item is None or (item.producer, item.number) in twice:
                continue
            bucket = self._tree.bucket(record.bucket)
            self._delays.make(bucket)
            if _make(self._session, item.path(self._tree), record.data):
                self.done.delayed += item.messages
            self._progress(1)


def _make(session: Session, path: str, data: bytes = b"") -> bool:
    """Create a znode, unless it is there; whether we did, as far as is known."""
    while True:
        try:
            session.multi([Create(path, data)])
            return True
        except TransactionFailed as error:
            if not failed_with(error, NodeExists):
                raise error.cause from error
            return False
        except ConnectionLost as error:
            if not error.outcome_unknown:
                raise


class _Lane:
    """A queue that is filled, in order, while nobody is registered for it."""

    def __init__(self, session: Session, queue: str, record: LaneRecord, client: str) -> None:
        self._session = session
        self._queue = queue
        self._record = record
        self._state = encode(QueueState(client))
        self._version = 0
        self._numbers: dict[int, int] = {}
        """Of the entries of which something is known: what they were, and what they are now."""
        self._count = 0
        self._batch: list[Operation] = []
        self._size = 0
        delete_queue(session, queue)  # of a restore that was cut short
        _make(session, queue.rpartition("/")[0])
        _make(session, queue, self._state)

    def put(self, record: EntryRecord) -> None:
        """The next entry."""
        operation = Create(f"{self._queue}/{record.name}", record.data, sequence=True)
        size = transaction_size([operation], self._session.overhead)
        if self._batch and (len(self._batch) >= BATCH or self._size + size > BATCH_BYTES):
            self._flush()
        if record.sequence in self._record.parts:
            self._numbers[record.sequence] = self._count
        self._batch.append(operation)
        self._size += size
        self._count += 1

    def finish(self) -> Ledger:
        """All of it is stored; what is known of it."""
        self._flush()
        return Ledger(parts={self._numbers[old]: part for old, part in self._record.parts.items()})

    def _flush(self) -> None:
        batch, self._batch, self._size = self._batch, [], 0
        if not batch:
            return
        lost = False
        while True:
            try:
                self._session.multi([SetData(self._queue, self._state, self._version), *batch])
                break
            except ConnectionLost as error:
                if not error.outcome_unknown:
                    raise
                lost = True
            except TransactionFailed as error:
                stat = self._session.exists(self._queue)
                if lost and failed_with(error, BadVersion) and stat is not None and stat.version == self._version + 1:
                    break  # by the attempt whose answer was lost
                raise StoreError(
                    f"changed by somebody else ({error.cause}): stop cleaners, and restore what is missing with --add",
                    path=self._queue,
                ) from error
        self._version += 1
