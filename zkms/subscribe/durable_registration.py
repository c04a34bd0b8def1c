"""Durable subscriptions and groups: registered once, kept until they are given up.

Registering is one transaction: queues, ledgers, the registration, the topic's epoch. From then on every publish that
begins reaches them, whether anybody is there to read or not. Where that is too large, what can be made beforehand is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from zkms.errors import (
    BadVersion,
    ConnectionLost,
    GroupMismatch,
    NodeExists,
    NodeMissing,
    NotEmpty,
    NotSubscribed,
    StoreError,
    SubscriptionInUse,
    TransactionFailed,
    Unauthorised,
)
from zkms.names import is_pattern
from zkms.publish.audience import patterns_in
from zkms.security import masked
from zkms.subscribe.options import DEFAULT_PARTITIONS, SubscribeOptions
from zkms.trail.hooks import Recorder
from zkms.tree.paths import Tree, queues_of
from zkms.tree.records import GroupPlan, Ledger, Patterns, QueueState, Registration, decode, encode, read_record
from zkms.zookeeper.deletion import delete_queue
from zkms.zookeeper.operations import Check, Create, Delete, Operation, SetData
from zkms.zookeeper.recipes import children_of, read_many
from zkms.zookeeper.session import Session, Stat, failed_with

_MOVED = (NodeMissing, NodeExists, BadVersion)
"""Somebody else was quicker: look again."""


class DurableRegistration:
    """Registers durable subscriptions and groups. Thread-safe."""

    def __init__(self, session: Session, tree: Tree, client_id: str, trail: Recorder | None = None) -> None:
        self._session = session
        self._tree = tree
        self._client_id = client_id
        self._trail = trail or Recorder()

    def subscribe(self, options: SubscribeOptions) -> tuple[Registration, bool]:
        """Register what is asked for, unless it is there; the registration as it is, and whether we made it.

        A group keeps the partitions that it was made with.
        """
        topic, name = options.topic, options.name or options.group or ""
        partitions = options.partitions or (DEFAULT_PARTITIONS if options.group is not None else 1)
        if options.group is not None and options.partitions is None:
            found = self.find(topic, name)
            if found is not None and found.kind == "group":
                partitions = found.partitions
        rights = self._session.rights
        wanted = options.registration(self._client_id, partitions, rights)
        registration, created = self.register(topic, name, wanted)
        if rights is not None and registration.owner != wanted.owner:
            others = ", ".join(map(masked, registration.owner)) or "nobody"
            raise Unauthorised(f"{name!r} of {topic!r} belongs to {others}, and these credentials are not theirs")
        if created:
            self._trail.note("subscribed", sub=name, topic=topic, kind=registration.kind)
        return registration, created

    def register(self, topic: str, name: str, wanted: Registration) -> tuple[Registration, bool]:
        """Register, unless that is done; the registration as it is, and whether we made it.

        `GroupMismatch` if one of that name is there that is of another kind, or has other partitions or selectors;
        `Unauthorised` if what is kept under that name belongs to others.
        """
        try:
            return self._register(topic, name, wanted)
        except Unauthorised as error:
            if self._session.rights is None or error.path is None:
                raise
            raise Unauthorised(
                f"{name!r} is, or was, the name of a subscription of others, and what it has left is theirs: take "
                "another name, or have it unsubscribed and its dead letters purged",
                path=error.path,
            ) from error

    def _register(self, topic: str, name: str, wanted: Registration) -> tuple[Registration, bool]:
        deadline = time.monotonic() + self._session.config.request_timeout
        tried = False
        while True:
            found = self.find(topic, name)
            if found is not None:
                if tried and found == wanted:
                    return found, True  # by the attempt whose answer was lost
                _compare(topic, name, found, wanted)
                self._check_shelf(name, found)
                return found, False
            try:
                self._check_shelf(name, wanted)
                operations = self._operations(topic, name, wanted)
                if self._session.fits(operations):
                    self._session.multi(operations, deadline=deadline)
                    return wanted, True
                self._prepare(topic, name, wanted, operations)
            except TransactionFailed as error:
                if not isinstance(error.cause, _MOVED) or time.monotonic() >= deadline:
                    raise error.cause from error
                self.make_topic(topic)
            except ConnectionLost:
                tried = True
                if time.monotonic() >= deadline:
                    raise

    def _check_shelf(self, name: str, registration: Registration) -> None:
        """Raise `Unauthorised` if we could not put dead letters where they belong: those of others are kept there."""
        if self._session.rights is not None and registration.owner == self._session.rights.owner:
            with suppress(NodeMissing):
                self._session.get(self._tree.dead_of(name))

    def find(self, topic: str, name: str) -> Registration | None:
        """The registration of that name."""
        path = self._tree.registration(topic, name)
        try:
            return read_record(self._session.get(path)[0], Registration, path)
        except NodeMissing:
            return None

    def _operations(self, topic: str, name: str, wanted: Registration) -> list[Operation]:
        tree = self._tree
        operations: list[Operation] = []
        names = queues_of(name, wanted)
        parents = read_many(self._session, names, lambda each: self._session.exists_async(tree.subscription(each)))
        queues = read_many(self._session, names, lambda each: self._session.get_async(tree.queue(each, topic)))
        for each in names:
            if parents.get(each) is None:
                operations.append(Create(tree.subscription(each)))
            operations.append(self._queue(tree.queue(each, topic), queues.get(each)))
        operations += self.bookkeeping(topic, name, [Ledger()] * len(names))
        operations += [Create(tree.registration(topic, name), encode(wanted)), SetData(tree.topic(topic), b"")]
        return operations

    def bookkeeping(self, topic: str, name: str, ledgers: Sequence[Ledger]) -> list[Operation]:
        """What makes all that a subscription knows of itself, parents first: its plan, its partitions' ledgers."""
        tree = self._tree
        group, parent = tree.group(name, topic), tree.ledgers(name, topic)
        operations: list[Operation] = []
        if self._session.exists(group.rpartition("/")[0]) is None:
            operations.append(Create(group.rpartition("/")[0]))
        fresh = {group: encode(GroupPlan()), tree.members(name, topic): b"", parent: b""}
        fresh |= {tree.ledger(name, topic, number): encode(ledger) for number, ledger in enumerate(ledgers)}
        operations += self._put(fresh)
        operations += [
            Delete(path) for each in children_of(self._session, parent) if (path := f"{parent}/{each}") not in fresh
        ]
        return operations

    def _prepare(self, topic: str, name: str, wanted: Registration, operations: Sequence[Operation]) -> None:
        """Make in several transactions what is too much for one: while nobody is registered, nobody uses it.

        Each shows that nobody is. It also writes the plan, so that whoever registers under that name at the same time,
        with fewer partitions, looks again and removes what it has no use for.
        """
        registration, group = self._tree.registration(topic, name), self._tree.group(name, topic)
        missing = [each for each in operations if isinstance(each, Create) and each.path != registration]
        if not missing:
            raise StoreError(
                f"{name!r} of {topic!r} cannot have {wanted.partitions:,} partitions, since their names do not fit "
                "into one transaction: take fewer, or shorter names"
            )
        missing.sort(key=lambda each: not each.path.startswith(self._tree.groups))  # the plan comes first
        lots = [missing]
        while lots:
            lot = lots.pop()
            proof: list[Operation] = [Create(registration), Delete(registration)]
            plan = [] if any(each.path == group for each in lot) else [SetData(group, encode(GroupPlan()))]
            if not self._session.fits([*proof, *plan, *lot]):
                lots += [lot[len(lot) // 2 :], lot[: len(lot) // 2]]
                continue
            self._session.multi([*proof, *plan, *lot])

    def _put(self, fresh: Mapping[str, bytes]) -> list[Operation]:
        """Make znodes, or take over what a subscription that is gone has left: never what is being made meanwhile.

        Whoever is first creates the registration in the same transaction, and that refuses the others.
        """
        stats = read_many(self._session, fresh, self._session.exists_async)
        return [
            Create(path, fresh[path]) if stat is None else SetData(path, fresh[path], stat.version)
            for path, stat in stats.items()
        ]

    def _queue(self, queue: str, found: tuple[bytes, Stat] | None) -> Operation:
        state = encode(QueueState(self._client_id))
        if found is None:
            return Create(queue, state)  # as it should be
        data, stat = found
        try:
            known = decode(data, QueueState)
        except msgspec.MsgspecError:
            return SetData(queue, state)
        # Its registration was removed by hand: what waits is kept, and what is known of it. But not what a restore has
        # put there so far.
        if not (known.gone or known.restore):
            return SetData(queue, encode(msgspec.structs.replace(known, client=self._client_id)), stat.version)
        self._delete_queue(queue, stat.version)
        return Create(queue, state)

    def make_topic(self, topic: str) -> None:
        """Make the topic's znode if it is not there; a pattern is put on the list of those in use."""
        path = self._tree.topic(topic)
        while self._session.exists(path) is None:
            operations: list[Operation] = [Create(path)]
            if is_pattern(topic):
                data, stat = self._session.get(self._tree.subscribers)
                patterns = Patterns((*patterns_in(data), topic))
                operations.append(SetData(self._tree.subscribers, encode(patterns), stat.version))
            try:
                self._session.multi(operations)
            except TransactionFailed as error:
                if not isinstance(error.cause, (NodeExists, BadVersion)):
                    raise error.cause from error
            except ConnectionLost as error:
                if not error.outcome_unknown:
                    raise

    def remake(self, topic: str, name: str, number: int, queue_name: str) -> bool:
        """Make a partition's queue anew, with nothing known of it; False if it is there, or nobody subscribes."""
        queue = self._tree.queue(queue_name, topic)
        parent = self._tree.subscription(queue_name)
        operations: list[Operation] = [] if self._session.exists(parent) is not None else [Create(parent)]
        operations += [
            Check(self._tree.registration(topic, name), -1),
            Create(queue, encode(QueueState(self._client_id))),
            SetData(self._tree.ledger(name, topic, number), encode(Ledger())),
            SetData(self._tree.topic(topic), b""),
        ]
        try:
            self._session.multi(operations)
        except TransactionFailed as error:
            if not isinstance(error.cause, (NodeMissing, NodeExists)):
                raise error.cause from error
            return False
        return True

    def unregister(self, topic: str, name: str, *, unless_used_by: str | None = None) -> int | None:
        """Give a durable subscription or a group up: its registration, its queues and all that waits in them.

        Returns the transaction that did it, if its answer tells.
        `SubscriptionInUse` if anybody but `unless_used_by` is there to read it; `NotSubscribed` if it does not exist.
        """
        registration = self.find(topic, name)
        if registration is None or registration.kind == "live":
            raise NotSubscribed(topic)
        others = [member for member in self.members(topic, name) if member != unless_used_by]
        if others:
            raise SubscriptionInUse(topic, name, others[0])
        names = queues_of(name, registration)
        gone = encode(QueueState(self._client_id, gone="unsubscribed"))
        marks: list[Operation] = [SetData(self._tree.queue(each, topic), gone) for each in names]
        group = self._tree.group(name, topic)
        # Together, so that who registers from now on finds all of it or nothing.
        wanted: list[Operation] = [
            *marks,
            Delete(self._tree.registration(topic, name)),
            SetData(self._tree.topic(topic), b""),
            *(Delete(self._tree.ledger(name, topic, number)) for number in range(len(names))),
            Delete(self._tree.ledgers(name, topic)),
            *([] if unless_used_by is None else [Delete(self._tree.member(name, topic, unless_used_by))]),
            Delete(self._tree.members(name, topic)),
            Delete(group),
        ]
        while True:
            try:
                results = self._session.multi(wanted)
                break
            except TransactionFailed as error:
                if failed_with(error, NotEmpty, path=self._tree.members(name, topic)):
                    raise SubscriptionInUse(topic, name, next(iter(self.members(topic, name)), "another")) from error
                if not failed_with(error, NodeMissing):
                    raise error.cause from error
                wanted = [operation for operation in wanted if operation is not error.operation]
            except ConnectionLost as error:
                if not error.outcome_unknown:
                    raise
        answers = [*zip(wanted, results, strict=True)]
        for operation, result in answers:
            if operation in marks:
                self._delete_queue(operation.path, result.version)
        try:
            self._session.multi([Delete(group.rpartition("/")[0])])
        except TransactionFailed as error:
            if not (failed_with(error, NodeMissing) or failed_with(error, NotEmpty)):
                raise error.cause from error
        return next((result.mzxid for each, result in answers if isinstance(each, SetData)), None)

    def _delete_queue(self, queue: str, version: int) -> None:
        """Remove a queue that nobody may take over; one that was made anew in its place is not touched."""
        try:
            delete_queue(self._session, queue, version=version)
        except TransactionFailed as error:
            if not failed_with(error, BadVersion, path=queue):
                raise error.cause from error

    def members(self, topic: str, name: str) -> list[str]:
        """Who is there to read it."""
        return children_of(self._session, self._tree.members(name, topic))


def _compare(topic: str, name: str, found: Registration, wanted: Registration) -> None:
    if found.kind != wanted.kind:
        raise GroupMismatch(topic, name, f"and is {_KINDS[found.kind]}")
    if found.partitions != wanted.partitions:
        raise GroupMismatch(topic, name, f"with {found.partitions} partitions instead of {wanted.partitions}")
    if found.where != wanted.where:
        raise GroupMismatch(topic, name, f"with the selector {found.where} instead of {wanted.where}")


_KINDS = {"live": "a live subscription", "durable": "a durable subscription", "group": "a group"}
