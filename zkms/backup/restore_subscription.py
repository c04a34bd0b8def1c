"""Restores one subscription: its queues are filled, then its ledgers are written, then it is registered.

So nobody reads a part of it, and what is published afterwards comes behind what is restored. Until it is registered,
every transaction proves that nobody else has registered it, and that the queue is the one that we have created: its
version stays 0. The transaction that registers it proves the same of all its queues. So what somebody else creates or
removes meanwhile is noticed, and never touched.

The queues say which restore they belong to (`QueueState.restore`): cleaners leave them alone as long as the journal is
written, and whoever registers the subscription in our place creates them anew.
"""

from __future__ import annotations

from zkms.backup.archive import EntryRecord, LateRecord, PartitionRecord, Subscribed
from zkms.backup.restore_journal import Journal
from zkms.errors import BadVersion, NodeExists, NodeMissing, StoreError, TransactionFailed
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.tree.paths import Tree, queues_of
from zkms.tree.records import Ledger, Part, QueueState, encode
from zkms.zookeeper.deletion import delete_queue
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Create, Operation, SetData, transaction_size
from zkms.zookeeper.recipes import absent, in_chunks
from zkms.zookeeper.session import Session, failed_with

BATCH = 500
BATCH_BYTES = MAX_TRANSACTION // 2
ATTEMPTS = 20
"""Times that what cleaners remove at that moment is made again."""
_MOVED = (NodeMissing, NodeExists, BadVersion)


class SubscriptionRestore:
    """Restores one subscription: `begin` each partition, `put` its entries, `end` it, then `finish`."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        journal: Journal,
        registrations: DurableRegistration,
        whose: Subscribed,
        client: str,
    ) -> None:
        self._session = session
        self._tree = tree
        self._journal = journal
        self._registrations = registrations
        self._topic, self._name, self._wanted = whose.topic, whose.name, whose.registration
        self._client = client
        self._registration = tree.registration(whose.topic, whose.name)
        self._absent = absent(self._registration)
        """The proof that nobody is registered."""
        self._queues: list[str] = []
        self._ledgers: list[Ledger] = []
        self._parts: dict[int, Part] = {}
        self._count = 0
        self._batch: list[Operation] = []
        self._size = 0
        registrations.make_topic(whose.topic)

    def begin(self, partition: PartitionRecord) -> None:
        """Create the queue of the next partition."""
        self._parts, self._count = {}, 0
        name = queues_of(self._name, self._wanted)[partition.number]
        queue, parent = self._tree.queue(name, self._topic), self._tree.subscription(name)
        state = encode(QueueState(self._client, restore=self._journal.claim))
        for tried in range(1, ATTEMPTS + 1):
            if self._session.exists(queue) is not None:  # of a restore that was cut short
                self._delete(queue)
            made: list[Operation] = [] if self._session.exists(parent) is not None else [Create(parent)]
            try:
                self._write([*self._absent, *made, Create(queue, state)])
                break
            except TransactionFailed as error:
                if tried == ATTEMPTS or error.operation.path not in (parent, queue):
                    raise self._explained(error) from error
        self._queues.append(queue)

    def put(self, record: EntryRecord | LateRecord, part: Part | None) -> None:
        """Add the next entry of the partition, and how far it is acked."""
        if part is not None:
            self._parts[self._count] = part
        operation = Create(f"{self._queues[-1]}/{record.name}", record.data, sequence=True)
        size = transaction_size([operation], self._session.overhead)
        if self._batch and (len(self._batch) >= BATCH or self._size + size > BATCH_BYTES):
            self._flush()
        self._batch.append(operation)
        self._size += size
        self._count += 1

    def end(self) -> None:
        """Store what is left of the partition."""
        if self._batch:
            self._flush()
        self._ledgers.append(Ledger(parts=self._parts))

    def finish(self) -> None:
        """Register it. Its ledgers are written before: all of them together may be too large for one transaction."""
        for tried in range(1, ATTEMPTS + 1):
            try:
                books = self._registrations.bookkeeping(self._topic, self._name, self._ledgers)
                for chunk in in_chunks(books, self._measure, BATCH, BATCH_BYTES):
                    self._write([*self._absent, *chunk])
                self._write(self._admission())
                return
            except TransactionFailed as error:
                # A cleaner may have taken the ledgers for what a subscription has left.
                removed = error.operation.path.startswith(f"{self._tree.groups}/") and isinstance(error.cause, _MOVED)
                if not removed or tried == ATTEMPTS:
                    raise self._explained(error) from error

    def _measure(self, operation: Operation) -> tuple[int, int]:
        return 1, transaction_size([operation], self._session.overhead)

    def _admission(self) -> list[Operation]:
        state = encode(QueueState(self._client))
        return [
            Create(self._registration, encode(self._wanted)),
            *(SetData(queue, state, 0) for queue in self._queues),
            *(Check(self._tree.ledger(self._name, self._topic, number), -1) for number in range(len(self._ledgers))),
            SetData(self._tree.topic(self._topic), b""),
        ]

    def _flush(self) -> None:
        batch, self._batch, self._size = self._batch, [], 0
        try:
            self._write([*self._absent, Check(self._queues[-1], 0), *batch])
        except TransactionFailed as error:
            raise self._explained(error) from error

    def _write(self, operations: list[Operation]) -> None:
        while True:
            try:
                self._journal.write(operations)
                return
            except TransactionFailed as error:
                if not failed_with(error, NodeMissing, path=self._registration):
                    raise
                self._registrations.make_topic(self._topic)  # the cleaner forgets those that nobody subscribes to

    def _delete(self, queue: str) -> None:
        try:
            delete_queue(self._session, queue, [self._journal.guard, *self._absent])
        except TransactionFailed as error:
            raise self._explained(error) from error

    def _explained(self, error: TransactionFailed) -> StoreError:
        """What was refused, as a sentence that says what to do."""
        if self._registrations.find(self._topic, self._name) is not None:
            return StoreError(
                f"{self._name!r} of {self._topic!r} was registered by somebody else while it was restored, and has "
                f"nothing of what is in the backup: keep consumers away, give it up with unsubscribe(), then restore "
                f"again"
            )
        if isinstance(error.cause, _MOVED):
            return StoreError(
                f"{self._name!r} of {self._topic!r} is not restored, for somebody else has changed it meanwhile "
                f"({error.cause}): keep consumers away, then restore again"
            )
        return error.cause
