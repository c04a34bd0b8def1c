"""The ownership of a partition: acks are committed to its ledger, each time at the version that we know.

A commit is one transaction: write the ledger, delete the entries that are wholly done with, create dead letters.
Whoever takes the partition over writes the ledger too, so our next commit is refused and the partition is lost: nobody
acks what another process reads. What comes while a commit is under way shares the next one.

A lost reply is settled by sending the same transaction again: refused at a version that is one ahead and still ours, it
had been carried out. Nobody else writes a ledger that has our claim.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from zkms.consume.claim import Claim
from zkms.errors import (
    BadVersion,
    Closed,
    ConnectionLost,
    NodeExists,
    NodeMissing,
    NotEmpty,
    TransactionFailed,
    ZkmsError,
)
from zkms.tree.entry import parse_entry
from zkms.tree.records import Ledger, Part, decode, encode
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import MAX_TRANSACTION, Create, Delete, Operation, SetData, transaction_size
from zkms.zookeeper.recipes import count_created
from zkms.zookeeper.session import Session, State, failed_with

log = logging.getLogger("zkms.consume")
BATCH = 500
"""Entries in one commit at the most."""
BATCH_BYTES = MAX_TRANSACTION // 2
RETRY_AFTER = 0.5
RELEASED = "it was released"


class CommitProgress(Protocol):
    """An entry of the partition, of which something is to be committed."""

    path: str
    sequence: int

    @property
    def complete(self) -> bool:
        """Whether all of its messages are done with."""
        ...

    def snapshot(self) -> tuple[Part | None, list[Operation]]:
        """What is done with of it, None if all is; and dead letters to create in the same commit, each once."""
        ...

    def committed(self, zxid: int | None) -> None:
        """What the last snapshot said is stored, by this transaction if that is known."""
        ...


class Watermark:
    """Which entries of a partition may have been delivered before we owned it: a trail calls them redelivered.

    An owner that releases its partition notes in the ledger how far it has come, by priority, as entries are delivered
    in order within one. After an owner that died, nobody can tell what was in flight; but nothing that was stored after
    its end can have been. Not thread-safe: the dispatcher's lock guards it.
    """

    def __init__(self, ledger: Ledger, *, clean: bool) -> None:
        known = ledger.epoch <= 1 or (clean and ledger.handed is not None)  # of the first owner there is nothing to say
        self._before: dict[int, int] = (ledger.handed or {}) if known else {}
        self._reached = dict(self._before)
        self.doubtful: Callable[[], int | None] = (lambda: ledger.doubtful) if known else (lambda: None)
        """Entries below this number may have been delivered, whatever is known of others; None: not known yet."""
        self.known = known
        """Whether the ledger says all that there is to say."""

    def before(self, priority: int, sequence: int) -> bool:
        """Whether an entry may have been delivered before us."""
        return sequence < self._before.get(priority, 0) or sequence < (self.doubtful() or 0)

    def reach(self, priority: int, sequence: int) -> None:
        """An entry is delivered, and so are those of its priority that came before it."""
        if sequence >= self._reached.get(priority, 0):
            self._reached[priority] = sequence + 1

    def stop_at(self, priority: int, sequence: int) -> None:
        """What was delivered of this entry is done with; the rest of it never was."""
        self._reached[priority] = max(self._before.get(priority, 0), sequence)

    def noted(self, ledger: Ledger) -> Ledger:
        """The ledger, with what the next owner has to know."""
        doubtful = self.doubtful()
        handed = None if doubtful is None else self._reached
        return Ledger(ledger.owner, ledger.claim, ledger.epoch, ledger.parts, handed, doubtful or 0)


def first_after(session: Session, queue: str, zxid: int) -> int:
    """The number of the first entry, there or to come, that was stored after this transaction."""
    try:
        names, stat = session.children(queue)
    except NodeMissing:
        return 0
    numbers = sorted((entry.sequence, entry.name) for entry in map(parse_entry, names) if not entry.foreign)
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        found = session.exists(f"{queue}/{numbers[middle][1]}")
        if found is None or found.czxid <= zxid:  # one that was removed meanwhile might as well have been before
            low = middle + 1
        else:
            high = middle
    return numbers[low][0] if low < len(numbers) else count_created(stat)


class Unsure(Closed):
    """The partition is lost, and nobody can tell whether the last commit was carried out before that."""


class _Commit:
    """A transaction under way."""

    def __init__(self, ledger: Ledger, version: int, entries: list[tuple[CommitProgress, list[Future[None]]]]) -> None:
        self.ledger = ledger
        self.version = version
        self.entries = entries
        self.operations: list[Operation] = []
        self.unsure = False
        """Whether it may have been carried out before."""
        self.sent = False
        """Whether it is under way: sent twice, its second answer would be taken for a loss."""


class Ownership:
    """Commits for one partition. Thread-safe; answers are looked at on the connection's thread."""

    def __init__(self, session: Session, path: str, claimed: Claim, lost: Callable[[str], None]) -> None:
        self.epoch = claimed.ledger.epoch
        self.since = claimed.zxid
        """The transaction that made it ours: grows with each owner, also where a subscription was given up and made
        anew, and its epochs with it."""
        self.parts: dict[int, Part] = dict(claimed.ledger.parts)
        """What is done with of each entry, as the ledger said when we claimed it, and as we have committed since."""
        self.watermark = Watermark(claimed.ledger, clean=claimed.clean)
        self.lost: str | None = None
        """Why the partition is not ours any more; None while it is."""
        self.refused = False
        """Whether that is because ZooKeeper refuses what we write: who claims the partition again meets the same."""
        self.path = path
        self.is_there: Callable[[str], bool] = lambda _path: True
        """Whether an entry may still be in the queue: of one that is not, the ledger need not know anything."""
        self._session = session
        self._ledger = msgspec.structs.replace(claimed.ledger, handed=None, doubtful=0)  # of no use in every commit
        self._version = claimed.version
        self._tell_lost = lost
        self._dirty: dict[int, tuple[CommitProgress, list[Future[None]]]] = {}
        self._gone: set[int] = set()
        """Entries that the ledger may know of, and that others have removed."""
        self._stale = False
        """Whether the ledger has to be written for that reason alone."""
        self._commit: _Commit | None = None
        self._paused = False
        self._idle = threading.Condition()

    # -- what is done with ---------------------------------------------------------------------------------------

    def mark(self, entry: CommitProgress, *, wait: bool = False) -> Future[None] | None:
        """Commit what is done with of an entry, soon; the Future, if asked for, says when it is stored."""
        future: Future[None] | None = Future() if wait else None
        with self._idle:
            if self.lost is not None:
                if future is not None:
                    future.set_exception(Closed(self.lost))
                return future
            _, futures = self._dirty.setdefault(entry.sequence, (entry, []))
            if future is not None:
                futures.append(future)
        self.flush()
        return future

    @property
    def uncommitted(self) -> int:
        """Entries that wait for a commit, or are part of one."""
        commit = self._commit
        return len(self._dirty) + (len(commit.entries) if commit is not None else 0)

    def forget(self, there: Container[int]) -> None:
        """Drop all entries from the ledger but these, which are the ones that are still in the queue."""
        with self._idle:
            gone = {sequence for sequence in self.parts if sequence not in there and sequence not in self._dirty}
            if not gone:
                return
            self._gone |= gone
            self._stale = True
            self.parts = {sequence: part for sequence, part in self.parts.items() if sequence not in gone}
        self.flush()

    def flush(self) -> None:
        """Send what waits to be committed; while a commit is under way, its answer does that."""
        with self._idle:
            waits = self._dirty or self._stale
            if self._commit is not None or self._paused or not waits or self.lost is not None:
                return
            if self._session.state is not State.CONNECTED:
                return
            commit = self._commit = self._next()
        self._send(commit)

    def _next(self) -> _Commit:
        entries: list[tuple[CommitProgress, list[Future[None]]]] = []
        operations: list[Operation] = []
        parts = dict(self.parts)
        self._stale = False
        size = 0
        while self._dirty and len(operations) < BATCH and size < BATCH_BYTES:
            sequence = next(iter(self._dirty))
            entry, futures = self._dirty.pop(sequence)
            part, added = entry.snapshot()
            if part is not None and self.is_there(entry.path):
                parts[sequence] = part
            else:
                parts.pop(sequence, None)
                self._gone.discard(sequence)
            if part is None:
                added.append(Delete(entry.path))
            operations += added
            if self._dirty:  # else nothing follows that might not fit
                size += transaction_size(added, self._session.overhead)
            entries.append((entry, futures))
        ledger = msgspec.structs.replace(self._ledger, parts=parts)
        commit = _Commit(ledger, self._version, entries)
        commit.operations = [SetData(self.path, encode(ledger), self._version), *operations]
        return commit

    def _send(self, commit: _Commit) -> None:
        commit.sent = True
        self._session.call_multi(commit.operations, lambda results, error: self._answered(commit, results, error))

    # -- answers, on the connection's thread ---------------------------------------------------------------------

    def _answered(self, commit: _Commit, results: Any, error: ZkmsError | None) -> None:
        commit.sent = False
        if self._commit is not commit:
            return  # settled by an answer that came before
        if error is None:
            self._succeed(commit, results[0].mzxid)
        elif isinstance(error, ConnectionLost):
            commit.unsure = commit.unsure or error.outcome_unknown
            if self._session.state is State.CONNECTED:  # overloaded, or a connection that is new already
                self._later(commit)
        elif isinstance(error, Closed):
            self._fail(commit, error)
            self._lose("the bus was closed")
        elif failed_with(error, BadVersion, path=self.path):
            self._session.call_get(self.path, lambda value, problem: self._judge(commit, value, problem))
        elif failed_with(error, NodeMissing, path=self.path):
            self._fail(commit, error)
            self._lose("the subscription was removed")
        elif isinstance(error, TransactionFailed) and isinstance(error.operation, Delete):
            self._cannot_delete(commit, error)
        elif isinstance(error, TransactionFailed) and failed_with(error, NodeMissing):
            self._make_shelf(commit, error.operation.path)
        else:
            self._refuse(commit, error, f"it cannot be written: {error}")

    def _judge(self, commit: _Commit, value: Any, problem: ZkmsError | None) -> None:
        if isinstance(problem, ConnectionLost):
            if self._session.state is State.CONNECTED:
                self._later(commit)
            return
        if self._commit is not commit:
            return
        owner = "somebody"
        if problem is None:
            try:
                found = decode(value[0], Ledger)
                if found.claim == self._ledger.claim and value[1].version == commit.version + 1 and commit.unsure:
                    self._succeed(commit, None)
                    return
                owner = f"client {found.owner!r}" if found.owner else "nobody, for now"
            except msgspec.MsgspecError:
                owner = "another program, which has overwritten it"
        reason = f"{self.path.rpartition('/groups/')[2]} was taken over by {owner}"
        self._fail(commit, Unsure(reason) if commit.unsure else Closed(reason))
        self._lose(reason)

    def _cannot_delete(self, commit: _Commit, error: TransactionFailed) -> None:
        path = error.operation.path
        if failed_with(error, NodeMissing):  # purged or expired meanwhile: as good as deleted
            commit.operations = [each for each in commit.operations if each is not error.operation]
            self._send(commit)
        elif failed_with(error, NotEmpty):
            log.warning("%s has children, which cannot be ours: removing them", path)
            threading.Thread(target=self._uproot, args=(commit, path), name="zkms-uproot", daemon=True).start()
        else:
            self._refuse(commit, error, f"its entries cannot be deleted: {error.cause}")

    def _refuse(self, commit: _Commit, error: ZkmsError, reason: str) -> None:
        """Lose the partition, since what waits to be committed would be refused again and again."""
        log.error("%s: %s", self.path, reason)
        self.refused = True
        self._fail(commit, error)
        self._lose(reason)

    def _uproot(self, commit: _Commit, path: str) -> None:
        try:
            delete_children(self._session, path)
        except ZkmsError as error:
            log.error("cannot delete what is below the acked entry %s: %s", path, error)
        self._later(commit)

    def _make_shelf(self, commit: _Commit, letter: str) -> None:
        """Make the parent of the subscription's dead letters, then send the commit again."""
        shelf = letter.rpartition("/")[0]

        def made(then: Callable[[], None], error: ZkmsError | None) -> None:
            if error is None or failed_with(error, NodeExists):
                then()
            elif isinstance(error, ConnectionLost) or failed_with(error, NodeMissing):  # removed, since it was empty
                log.warning("%s could not be made: %s; trying again", shelf, error)
                self._later(commit)
            else:
                self._refuse(commit, error, f"there is no place for its dead letters: {error}")

        def make(path: str, then: Callable[[], None]) -> None:
            self._session.call_multi([Create(path)], lambda _results, error: made(then, error))

        make(shelf.rpartition("/")[0], lambda: make(shelf, lambda: self._again(commit)))

    def _later(self, commit: _Commit) -> None:
        timer = threading.Timer(RETRY_AFTER, lambda: self._again(commit))
        timer.daemon = True
        timer.start()

    def _again(self, commit: _Commit) -> None:
        with self._idle:
            if self._commit is not commit or self.lost is not None or commit.sent:
                return
            commit.sent = True
        self._send(commit)

    def reconnected(self) -> None:
        """The connection is a new one: what was under way is sent again."""
        with self._idle:
            commit = self._commit
        if commit is not None:
            self._again(commit)
        else:
            self.flush()

    def _succeed(self, commit: _Commit, zxid: int | None) -> None:
        for entry, _ in commit.entries:
            entry.committed(zxid)
        with self._idle:
            self.parts = self._without_gone(commit.ledger)
            self._version = commit.version + 1
            self._commit = None
            self._idle.notify_all()
        for _, futures in commit.entries:
            for future in futures:
                future.set_result(None)
        self.flush()

    def _without_gone(self, written: Ledger) -> dict[int, Part]:
        """What the ledger says, but for what was removed by others while it was being written."""
        return {number: part for number, part in written.parts.items() if number not in self._gone}

    def _fail(self, commit: _Commit, error: BaseException) -> None:
        with self._idle:
            self._commit = None
            self._idle.notify_all()
        for _, futures in commit.entries:
            for future in futures:
                future.set_exception(error)

    def _lose(self, reason: str) -> None:
        with self._idle:
            if self.lost is not None:
                return
            self.lost = reason
            waiting = [future for _, futures in self._dirty.values() for future in futures]
            self._dirty.clear()
            self._idle.notify_all()
        for future in waiting:
            future.set_exception(Closed(reason))
        self._tell_lost(reason)

    # -- ends ----------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Look whether the partition is still ours, and lose it if not; not on the connection's thread."""
        with self._idle:
            if self._commit is not None or self.lost is not None:
                return  # a commit under way will tell
            version = self._version
        try:
            data, stat = self._session.get(self.path)
            ours = stat.version == version or decode(data, Ledger).claim == self._ledger.claim
        except (NodeMissing, msgspec.MsgspecError):
            ours = False
        if not ours:
            self._lose("another process has taken it over")

    def renew(self) -> None:
        """Write the ledger, if it is ours: others may claim what was written before we became a member."""
        with self._idle:
            self._stale = self.lost is None
        self.flush()

    def drain(self, timeout: float) -> bool:
        """Wait until all is committed, at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        with self._idle:
            return self._idle.wait_for(
                lambda: self.lost is not None or (self._commit is None and not self._dirty),
                max(0.0, deadline - time.monotonic()),
            )

    def release(self) -> bool:
        """Release the partition, so that the next owner need not wait for our session's end. After drain().

        False if it is to be tried again, lest nobody can have the partition while our session lives.
        """
        with self._idle:
            if self.lost not in (None, RELEASED):
                return True
            if self._commit is not None:
                return False
            self.lost = RELEASED
        free = self.watermark.noted(Ledger("", "", self.epoch, self.parts))
        try:
            self._session.multi([SetData(self.path, encode(free), self._version)])
        except TransactionFailed as error:
            log.info("%s is released already, or has another owner: %s", self.path, error)
        except ConnectionLost as error:
            log.info("%s could not be released yet: %s", self.path, error)
            return False
        return True

    # -- together with something else ----------------------------------------------------------------------------

    def pause(self, deadline: float) -> bool:
        """Commit nothing until `resume`: what is done with goes into a transaction of somebody else's.

        False if the partition is not ours any more.
        """
        with self._idle:
            free = self._idle.wait_for(
                lambda: self.lost is not None or (self._commit is None and not self._paused),
                max(0.0, deadline - time.monotonic()),
            )
            if not free:
                raise ConnectionLost("ZooKeeper did not answer in time", outcome_unknown=False)
            self._paused = self.lost is None
            return self._paused

    def operations(self, entries: list[CommitProgress]) -> tuple[Ledger, list[Operation]]:
        """The operations that commit these entries, for the transaction that we are paused for."""
        with self._idle:
            before, self._dirty = self._dirty, {entry.sequence: (entry, []) for entry in entries}
            stale = self._stale
            commit = self._next()
            self._dirty, self._stale = before, stale  # it may not be carried out
        return commit.ledger, commit.operations

    def resume(self, committed: Ledger | None, entries: list[CommitProgress]) -> None:
        """End `pause`; `committed` is the ledger as the transaction has written it, None if it was not carried out."""
        done: list[Future[None]] = []
        with self._idle:
            self._paused = False
            if committed is not None:
                self.parts = self._without_gone(committed)
                self._version += 1
                for entry in entries:  # one that is gone cannot be deleted again
                    entry.committed(None)
                    if entry.complete:
                        done += self._dirty.pop(entry.sequence, (entry, []))[1]
            self._idle.notify_all()
        for future in done:
            future.set_result(None)
        self.flush()

    def is_refused(self, error: TransactionFailed) -> bool:
        """Whether a transaction was refused because the partition is not ours any more; then it is lost from now on."""
        if not failed_with(error, BadVersion, path=self.path) and not failed_with(error, NodeMissing, path=self.path):
            return False
        self._lose("another process has taken it over")
        return True
