"""One pass of the cleaner over the tree: removes what nobody owns any more, and what is past its time.

A queue whose registration has been missing for the grace period is condemned by one transaction: it checks that we
lead, writes the reason into the queue at the version that we read, proves that the registration does not exist, and
bumps the topic's epoch. A subscriber that comes back at that moment either registers first, and our transaction is
refused, or it finds its queue condemned and makes a new one. The entries are removed only after that, in transactions
that check the lead as well, and that it is still the same queue.
The znode of a producer is removed when its client has been gone and silent for long. What was set aside in dead/ stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any

import msgspec

from zkms.errors import BadVersion, ConnectionLost, NodeExists, NodeMissing, NotEmpty, StoreError, TransactionFailed
from zkms.names import FULL_MARK
from zkms.trail.hooks import Recorder
from zkms.tree.paths import Tree, subscription_of
from zkms.tree.records import QueueState, decode_or_none, encode
from zkms.zookeeper.deletion import BATCH, BATCH_BYTES, delete_queue
from zkms.zookeeper.operations import Check, Delete, Operation, SetData, transaction_size
from zkms.zookeeper.recipes import absent, in_chunks, read_many
from zkms.zookeeper.session import Session
from zkms_cleaner.election import Lead
from zkms_cleaner.leftovers import Leftovers
from zkms_cleaner.orphans import PRODUCER_IDLE, PURGED, OrphanFinding, Orphans

log = logging.getLogger("zkms.cleaner")
SMALL = 200
"""Entries of a queue that is removed in one transaction, many such queues at a time."""


ORPHANS = ("queue", "empty", "flag", "body")
"""Kinds of findings whose owner may come back, and that have a grace therefore."""
REMOVED_HERE = ("empty", "flag", "body", "producer")


class SweepCut(Exception):
    """The sweep was told to stop."""


class Swept(msgspec.Struct, frozen=True):
    """The result of a sweep."""

    removed: list[OrphanFinding]
    waiting: list[OrphanFinding]
    """Orphans whose grace is not over."""
    failed: int = 0
    """Orphans that were due and that ZooKeeper did not let us remove; not those whose owner came back."""


class Sweeper:
    """Finds and removes orphans; remembers since when it has seen each, by its own monotonic clock."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        *,
        grace: float,
        producer_idle: float = PRODUCER_IDLE,
        unused_after: float | None = None,
        trail: Recorder | None = None,
        stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._tree = tree
        self._grace = grace
        self._trail = trail or Recorder()
        self._stopped = stopped
        self._clock = clock
        self._orphans = Orphans(session, tree, producer_idle=producer_idle, wall_clock=wall_clock)
        self._leftovers = Leftovers(session, tree, unused_after=unused_after, wall_clock=wall_clock)
        self._seen: dict[tuple[str, int, int], float] = {}
        self._lead = ""
        self._failed = 0

    def find(self) -> list[OrphanFinding]:
        """What is orphaned now, and how long each has still to wait; nothing is changed in ZooKeeper."""
        seen, now, found = {}, self._clock(), []
        orphans = self._orphans.find()
        for finding in [*orphans, *(each for each, _ in self._leftovers.find(self._orphans.topics))]:
            # Whoever came back meanwhile and went again has changed the version: the grace begins anew. So does that of
            # a queue which is being restored, as long as its restore goes on.
            key = finding.path, finding.version, finding.restore
            seen[key] = self._seen.get(key, now)
            immediate = finding.kind not in ORPHANS or finding.reason == PURGED
            left = 0.0 if immediate else max(0.0, seen[key] + self._grace - now)
            found.append(msgspec.structs.replace(finding, due_in=left))
        self._seen = seen
        return found

    def sweep(self, lead: Lead) -> Swept:
        """Remove what is due; raises `TransactionFailed` when the lead is lost, `SweepCut` if it is to stop."""
        if lead.path != self._lead:
            # What was seen under an earlier lead may have been alive since.
            self._seen, self._lead = {}, lead.path
        self._failed = 0
        found = self.find()
        due = [finding for finding in found if finding.due_in <= 0]
        queues = self._condemn(lead, [finding for finding in due if finding.kind == "queue"])
        removed = self._remove_small(lead, [finding for finding in queues if finding.entries <= SMALL])
        done = {finding.path for finding in removed}
        removed += self._remove_large(lead, [finding for finding in queues if finding.path not in done])
        removed += self._remove_others(lead, [finding for finding in due if finding.kind in REMOVED_HERE])
        removed += self._remove_leftovers(lead)
        return Swept(removed, [finding for finding in found if finding.due_in > 0], self._failed)

    # -- condemning ----------------------------------------------------------------------------------------------

    def _condemn(self, lead: Lead, queues: list[OrphanFinding]) -> list[OrphanFinding]:
        """Make queues unusable for good, and return those that are; not those that somebody came back to."""
        alive = {finding: self._condemnation(finding) for finding in queues if not finding.condemned}
        condemned = self._commit_all(lead, alive)
        return [
            msgspec.structs.replace(finding, version=finding.version + 1, condemned=True)
            if finding in condemned
            else finding
            for finding in queues
            if finding.condemned or finding in condemned
        ]

    def _condemnation(self, finding: OrphanFinding) -> list[Operation]:
        subscription, topic = finding.path.split("/")[-2:]
        registration = self._tree.registration(topic, subscription_of(subscription))
        state = decode_or_none(finding.data, QueueState) or QueueState("")
        gone = encode(msgspec.structs.replace(state, gone=PURGED))
        operations: list[Operation] = [SetData(finding.path, gone, finding.version)]
        if finding.restore >= 0:
            operations.append(Check(self._tree.restores, finding.restore))
        if finding.topic_exists:
            operations += absent(registration)
            if finding.flagged:
                operations.append(Delete(self._tree.full_flag(topic, subscription)))
            operations.append(SetData(self._tree.topic(topic), b""))
        return operations

    # -- removing ------------------------------------------------------------------------------------------------

    def _remove_small(self, lead: Lead, queues: list[OrphanFinding]) -> list[OrphanFinding]:
        """Each in a transaction of its own, with its entries; those where that fails are left to `_remove_large`."""
        listed = read_many(self._session, queues, lambda f: self._session.children_async(f.path), self._note)
        transactions: dict[OrphanFinding, list[Operation]] = {}
        names_in: dict[OrphanFinding, list[str]] = {}
        for finding, (names, _) in listed.items():
            operations: list[Operation] = [Delete(f"{finding.path}/{name}") for name in names[: 2 * SMALL]]
            operations.append(Delete(finding.path, finding.version))
            if finding.alone:
                operations.append(Delete(finding.path.rsplit("/", 1)[0]))
            transactions[finding] = operations
            names_in[finding] = names
        removed = []
        for finding in self._commit_all(lead, transactions, quietly=True):
            removed.append(msgspec.structs.replace(finding, entries=len(names_in[finding])))
            log.info("purged %s", removed[-1])
            self._record(finding, names_in[finding])
        # The last of several queues takes its subscription with it; as long as there is another, ZooKeeper refuses.
        parents = {f.path.rsplit("/", 1)[0]: f for f in removed if not f.alone}
        self._commit_all(lead, {finding: [Delete(path)] for path, finding in parents.items()}, quietly=True)
        return removed

    def _remove_large(self, lead: Lead, queues: list[OrphanFinding]) -> list[OrphanFinding]:
        removed = []
        for finding in queues:
            names: set[str] = set()
            try:
                entries = delete_queue(
                    self._session, finding.path, lead.guard, lambda _count: self._check(), names.add, finding.version
                )
            except ConnectionLost:
                raise
            except StoreError as error:
                if isinstance(error, TransactionFailed) and error.operation.path != finding.path:  # the lead's
                    raise
                self._note(finding, error)
                continue
            done = msgspec.structs.replace(finding, entries=entries)
            log.info("purged %s", done)
            self._record(finding, names)
            removed.append(done)
        return removed

    def _record(self, finding: OrphanFinding, names: Collection[str]) -> None:
        queue, topic = finding.path.split("/")[-2:]
        self._trail.purged(queue, topic, names, finding.reason)

    def _remove_others(self, lead: Lead, findings: list[OrphanFinding]) -> list[OrphanFinding]:
        transactions = {finding: self._removal(finding) for finding in findings}
        done = self._commit_all(lead, transactions)
        for finding in done:
            log.info("purged %s", finding)
        return done

    def _remove_leftovers(self, lead: Lead) -> list[OrphanFinding]:
        """Remove what is past its time, until nothing is: each look finds a bounded number."""
        removed: list[OrphanFinding] = []
        topics = self._orphans.topics
        while True:
            self._check()
            lot, topics = dict(self._leftovers.find(topics)), {}
            done = self._commit_all(lead, lot)
            removed += done
            for finding in done:
                log.info("removed %s", finding)
                if finding.kind == "expired":
                    self._record(finding, [o.path.rpartition("/")[2] for o in lot[finding] if isinstance(o, Delete)])
            if not done:
                return removed

    def _removal(self, finding: OrphanFinding) -> list[Operation]:
        parent, name = finding.path.rsplit("/", 1)
        if finding.kind == "producer":
            return [*absent(self._tree.client(name)), Delete(finding.path, finding.version)]
        if finding.kind == "flag":
            registration = finding.path.removesuffix(FULL_MARK)
            return [*absent(registration), Delete(finding.path), SetData(parent, b"")]
        return [Delete(finding.path)]

    # -- transactions --------------------------------------------------------------------------------------------

    def _commit_all(
        self, lead: Lead, transactions: dict[OrphanFinding, list[Operation]], *, quietly: bool = False
    ) -> list[OrphanFinding]:
        """Commit all and return those that ZooKeeper accepted: in groups, and where one is refused each by itself."""

        def measure(finding: OrphanFinding) -> tuple[int, int]:
            operations = transactions[finding]
            return len(operations), transaction_size(operations, self._session.overhead)

        # As many together as fit into a transaction: the request is what costs, not what is in it.
        groups = [tuple(chunk) for chunk in in_chunks(transactions, measure, BATCH, BATCH_BYTES)]
        accepted = {finding for group in self._commit(lead, transactions, groups) for finding in group}
        alone = [(finding,) for group in groups if len(group) > 1 for finding in group if finding not in accepted]
        single = [group for group in groups if len(group) == 1 and group[0] not in accepted]
        note = (lambda _finding, _error: None) if quietly else self._note
        accepted |= {finding for (finding,) in self._commit(lead, transactions, [*single, *alone], note)}
        return [finding for finding in transactions if finding in accepted]

    def _commit(
        self,
        lead: Lead,
        transactions: dict[OrphanFinding, list[Operation]],
        groups: list[tuple[OrphanFinding, ...]],
        note: Callable[[OrphanFinding, StoreError], None] = lambda _finding, _error: None,
    ) -> list[tuple[OrphanFinding, ...]]:

        def send(group: tuple[OrphanFinding, ...]) -> Future[list[Any]]:
            self._check()
            operations = [operation for finding in group for operation in transactions[finding]]
            return self._session.multi_async([*lead.guard, *operations])

        def failed(group: tuple[OrphanFinding, ...], error: StoreError) -> None:
            if isinstance(error, ConnectionLost) or lead.lost_by(error):
                raise error
            note(group[0], error)

        return list(read_many(self._session, groups, send, failed))

    def _note(self, finding: OrphanFinding, error: StoreError) -> None:
        cause = error.cause if isinstance(error, TransactionFailed) else error
        if isinstance(cause, ConnectionLost):
            raise cause
        if isinstance(cause, (NodeMissing, NodeExists, BadVersion, NotEmpty)):
            log.info("%s is not as it was found, so it is not removed: %s", finding.path, cause)
            return
        self._failed += 1
        log.warning("%s cannot be removed: %s", finding.path, cause)

    def _check(self) -> None:
        if self._stopped():
            raise SweepCut
