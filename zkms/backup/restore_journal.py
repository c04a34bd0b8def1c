"""The journal of restores, `ROOT/restores`: which restore writes, and how far each file got.

Every transaction of a restore writes it, at the version that the last one left. So only one restore writes at a time:
whoever begins takes it over, and the other is refused. A transaction whose reply was lost is sent again, and refused if
it had been carried out: then the journal holds our claim. What is counted in the transaction that puts it back is put
back once, however often the restore is run.

It holds the last few files only, so it does not grow.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from zkms.errors import BadVersion, ConnectionLost, NodeExists, NodeMissing, StoreError, TransactionFailed
from zkms.tree.paths import Tree
from zkms.tree.records import FileProgress, Restores, encode, read_record
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Create, Operation, SetData, transaction_size
from zkms.zookeeper.recipes import attempt, create_if_missing, stats_of
from zkms.zookeeper.session import Session

FILES = 16
"""Files that the journal remembers."""
BATCH = 500
BATCH_BYTES = MAX_TRANSACTION // 2
ATTEMPTS = 20
"""Times that a bucket or a shelf is made again which somebody else removes at that moment."""


class Journal:
    """The journal as the restore of one file writes it; `open` first."""

    def __init__(self, session: Session, tree: Tree, digest: str) -> None:
        self.claim = secrets.token_hex(8)
        self.progress = FileProgress()
        """How far this file got."""
        self.resumed = False
        """Whether it was begun before."""
        self._session = session
        self._path = tree.restores
        self._digest = digest
        self._others: dict[str, FileProgress] = {}
        self._version = -1

    def look(self) -> FileProgress | None:
        """How far the file got, without taking anything over; None if it was never begun."""
        return self._read()[0].files.get(self._digest)

    def open(self) -> None:
        """Take over: from now on other restores are refused."""
        while True:
            found, version = self._read()
            if version < 0:
                create_if_missing(self._session, self._path, data=encode(Restores()))
                continue
            files = dict(found.files)
            known = files.pop(self._digest, None)
            self.progress, self.resumed = known or FileProgress(), known is not None
            self._others = dict([*files.items()][1 - FILES :])
            try:
                taken = attempt(
                    self._session, [SetData(self._path, self._data(self.progress), version)], BadVersion
                ).stored
            except ConnectionLost as error:
                if not error.outcome_unknown:
                    raise
                taken = False
            if taken:
                self._version = version + 1
                return

    @property
    def guard(self) -> Operation:
        """For a transaction that does not write the journal: it is refused once another restore has taken over."""
        return Check(self._path, self._version)

    def write(self, operations: Sequence[Operation] = (), progress: FileProgress | None = None) -> None:
        """Carry out operations, once, and note how far we are; `TransactionFailed` if one of them is refused."""
        progress = progress or self.progress
        mark = SetData(self._path, self._data(progress), self._version)
        lost = False
        while True:
            try:
                self._session.multi([mark, *operations])
                break
            except ConnectionLost as error:
                if not error.outcome_unknown:
                    raise
                lost = True
            except TransactionFailed as error:
                if error.operation is not mark:
                    raise
                if not (lost and self._is_ours()):  # by the attempt whose answer was lost
                    raise StoreError("another restore has taken over: let it end", path=self._path) from error
                break
        self._version += 1
        self.progress = progress

    def _is_ours(self) -> bool:
        found, version = self._read()
        return found.claim == self.claim and version == self._version + 1

    def _read(self) -> tuple[Restores, int]:
        """What is there, and its version; -1 if there is nothing."""
        try:
            data, stat = self._session.get(self._path)
            return read_record(data, Restores, self._path, "delete it"), stat.version
        except NodeMissing:
            return Restores(), -1

    def _data(self, progress: FileProgress) -> bytes:
        return encode(Restores(self.claim, self._others | {self._digest: progress}))


class JournalBatch:
    """Records of one kind, put back in order by transactions that count them."""

    def __init__(
        self, session: Session, journal: Journal, kind: Literal["letters", "delayed"], remake: Callable[[str], None]
    ) -> None:
        self.stored = 0
        """Messages that were put back."""
        self._session = session
        self._journal = journal
        self._kind = kind
        self._remake = remake
        """Makes the parent anew: a bucket that is over is removed by the cleaner, a shelf by whoever likes."""
        self._items: list[tuple[Create, int]] = []
        self._places = self._size = 0

    def put(self, create: Create | None, messages: int) -> None:
        """Add the next record; None if it is only to be counted."""
        size = 0 if create is None else transaction_size([create], self._session.overhead)
        if self._places and (self._places >= BATCH or self._size + size > BATCH_BYTES):
            self.flush()
        if create is not None:
            self._items.append((create, messages))
        self._places += 1
        self._size += size

    def flush(self) -> None:
        """Store all that was added; what is there already is left as it is."""
        if not self._places:
            return
        count = getattr(self._journal.progress, self._kind) + self._places
        progress = msgspec.structs.replace(self._journal.progress, **{self._kind: count})
        for tried in range(1, ATTEMPTS + 1):
            try:
                self._journal.write([create for create, _ in self._items], progress)
                break
            except TransactionFailed as error:
                if tried == ATTEMPTS or not isinstance(error.cause, (NodeExists, NodeMissing)):
                    raise error.cause from error
                if isinstance(error.cause, NodeMissing):
                    self._remake(error.operation.path.rpartition("/")[0])
                else:
                    self._leave_out()
        self.stored += sum(messages for _, messages in self._items)
        self._items, self._places, self._size = [], 0, 0

    def _leave_out(self) -> None:
        """Drop the records that are there already."""
        there = stats_of(self._session, [create.path for create, _ in self._items], str)
        self._items = [item for item in self._items if item[0].path not in there]
