"""Restores a backup: dead letters, subscriptions with what waits for them, delayed messages.

Each subscription is filled before it is registered (see restore_subscription.py), so it is there as a whole or not at
all. Dead letters and delayed messages are counted in the transactions that put them back (see restore_journal.py). So a
restore that was cut short anywhere is run again and does what is left, and a file that was restored is not restored a
second time, except for subscriptions that are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from zkms.backup.archive import DeadLetterRecord, DelayedRecord, EntryRecord, PartitionRecord, Subscribed, records
from zkms.backup.backup import QUIET, SEQUENCE, Progress
from zkms.backup.restore_journal import Journal, JournalBatch
from zkms.backup.restore_subscription import SubscriptionRestore
from zkms.backup.verify import Examined, examine
from zkms.errors import NodeMissing, StoreError, ZkmsError
from zkms.publish.delayed import DelayedPublishing
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.tree.delayed_names import parse_bucket, parse_delayed
from zkms.tree.layout import ensure_tree
from zkms.tree.paths import Tree
from zkms.tree.records import DeadQueueState, decode, encode
from zkms.zookeeper.operations import Create
from zkms.zookeeper.recipes import children_of, create_if_missing
from zkms.zookeeper.session import Session

_LETTER = re.compile(r"d\.1\.\d{1,9}\.\d{10}", re.ASCII)


class RootInUse(ZkmsError):
    """There are subscriptions, delayed messages or dead letters below the root already; nothing was restored."""

    def __init__(self, root: str, what: str) -> None:
        super().__init__(
            f"{root} is not empty, it has {what}; nothing was restored: take another root, or add to it: --add"
        )
        self.root = root


class Restored(msgspec.Struct):
    """The result of a restore."""

    subscriptions: int = 0
    entries: int = 0
    delayed: int = 0
    letters: int = 0
    kept: list[str] = []
    """Subscriptions, and subscriptions' dead letters, that were there already and were left as they are."""
    again: bool = False
    """Whether this file was restored here before: its delayed messages and dead letters are not put back again."""


def restore(
    session: Session, tree: Tree, file: Path, *, add: bool = False, client: str = "restore", progress: Progress = QUIET
) -> Restored:
    """Put back what is in the file; `RootInUse` where anything is kept already, unless it may be added to.

    Subscriptions that exist are left as they are, and named. One that was cut short is run again: it does what is left.
    """
    examined = examine(file)
    ensure_tree(session, tree)
    if session.rights is not None:  # whoever restores would own it
        raise StoreError(
            "has separate roles, and what is restored could not be given to its subscribers", path=tree.root
        )
    journal = Journal(session, tree, examined.digest)
    begun = journal.look()
    resumes = begun is not None and not begun.finished
    if not (add or resumes) and (what := _in_use(session, tree)):
        raise RootInUse(tree.root, what)
    journal.open()
    target = _Target(session, tree, journal, examined, client, progress)
    target.put_dead_letters(record for record in records(file) if isinstance(record, DeadLetterRecord))
    target.put_subscriptions(
        record for record in records(file) if isinstance(record, Subscribed | PartitionRecord | EntryRecord)
    )
    # Last: what is overdue is moved at once, to those who subscribe.
    target.put_delayed(record for record in records(file) if isinstance(record, DelayedRecord))
    journal.write((), msgspec.structs.replace(journal.progress, finished=True))
    return target.done


def _in_use(session: Session, tree: Tree) -> str:
    groups = children_of(session, tree.groups)
    if groups:
        return f"the subscription {groups[0]!r}"
    buckets = [begins for name in children_of(session, tree.delayed) if (begins := parse_bucket(name)) is not None]
    if any(children_of(session, tree.bucket(begins)) for begins in buckets):
        return "delayed messages"
    return "dead letters" if children_of(session, tree.dead) else ""


class _Target:
    """Writes what is restored into the tree."""

    def __init__(
        self, session: Session, tree: Tree, journal: Journal, examined: Examined, client: str, progress: Progress
    ) -> None:
        self.done = Restored(again=journal.progress.finished)
        self._session = session
        self._tree = tree
        self._journal = journal
        self._examined = examined
        self._client = client
        self._progress = progress
        self._registrations = DurableRegistration(session, tree, client)
        self._delays = DelayedPublishing(session, tree)
        self._shelves: dict[str, bool] = {}
        """By the parent of dead letters: whether it is this restore's to fill."""

    # -- subscriptions -------------------------------------------------------------------------------------------

    def put_subscriptions(self, found: Iterable[Subscribed | PartitionRecord | EntryRecord]) -> None:
        """Restore each subscription: its queues with what waits in them, then its ledgers and its registration."""
        whose: Subscribed | None = None
        restoring: SubscriptionRestore | None = None
        partition: PartitionRecord | None = None
        for record in found:
            if isinstance(record, EntryRecord):
                if restoring is not None and partition is not None:
                    restoring.put(record, partition.parts.get(record.sequence))
                    self.done.entries += 1
            else:
                self._end_partition(restoring, whose, partition)
                partition = record if isinstance(record, PartitionRecord) else None
                if isinstance(record, Subscribed):
                    self._finish(restoring)
                    whose, restoring = record, self._restoring(record)
                elif restoring is not None:
                    restoring.begin(record)
            self._progress(1)
        self._end_partition(restoring, whose, partition)
        self._finish(restoring)

    def _restoring(self, record: Subscribed) -> SubscriptionRestore | None:
        """How to restore a subscription; None if it exists."""
        if self._registrations.find(record.topic, record.name) is not None:
            self.done.kept.append(f"{record.name} of {record.topic}")
            return None
        return SubscriptionRestore(self._session, self._tree, self._journal, self._registrations, record, self._client)

    def _end_partition(
        self, restoring: SubscriptionRestore | None, whose: Subscribed | None, partition: PartitionRecord | None
    ) -> None:
        if restoring is None or whose is None or partition is None:
            return
        for late in self._examined.late.get((whose.topic, whose.name, partition.number), ()):
            restoring.put(late, late.part)
            self.done.entries += 1
        restoring.end()

    def _finish(self, restoring: SubscriptionRestore | None) -> None:
        if restoring is not None:
            restoring.finish()
            self.done.subscriptions += 1

    # -- the rest ------------------------------------------------------------------------------------------------

    def put_dead_letters(self, found: Iterable[DeadLetterRecord]) -> None:
        """Restore dead letters, before anybody could add to them; parents that others have made are left alone."""
        before, batch = self._journal.progress, JournalBatch(self._session, self._journal, "letters", self._make_shelf)
        for place, record in enumerate(found):
            self._progress(1)
            if place < before.letters or before.finished:
                continue
            shelf = self._tree.dead_queue(record.shelf, record.topic)
            if shelf not in self._shelves:
                self._shelves[shelf] = self._own(shelf)
                if not self._shelves[shelf]:
                    self.done.kept.append(f"dead letters of {record.shelf}, {record.topic}")
            ours = _LETTER.fullmatch(record.name) is not None
            create = Create(f"{shelf}/{record.name[: -SEQUENCE if ours else None]}", record.data, sequence=ours)
            batch.put(create if self._shelves[shelf] else None, 1)
        batch.flush()
        self.done.letters = batch.stored

    def _own(self, shelf: str) -> bool:
        """Create the parent of dead letters; whether it is that of this file's restore."""
        if self._session.exists(shelf) is not None and not self._journal.resumed:
            return False
        self._make_shelf(shelf)
        try:
            return decode(self._session.get(shelf)[0], DeadQueueState).restored == self._examined.digest
        except (NodeMissing, msgspec.MsgspecError):
            return False

    def _make_shelf(self, shelf: str) -> None:
        create_if_missing(self._session, shelf.rpartition("/")[0])
        create_if_missing(self._session, shelf, data=encode(DeadQueueState(self._examined.digest)))

    def put_delayed(self, found: Iterable[DelayedRecord]) -> None:
        """Restore delayed messages; those that are there already are left as they are."""
        before, batch = self._journal.progress, JournalBatch(self._session, self._journal, "delayed", self._delays.make)
        for place, record in enumerate(found):
            self._progress(1)
            item = parse_delayed(record.bucket, record.name)
            if item is None or place < before.delayed or before.finished:
                continue
            self._delays.make(self._tree.bucket(record.bucket))
            batch.put(Create(item.path(self._tree), record.data), item.messages)
        batch.flush()
        self.done.delayed = batch.stored
