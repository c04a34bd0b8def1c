"""Durable subscriptions and groups: registered once, kept until they are given up.

Enrolling is one transaction: queues, ledgers, the registration, the topic's epoch. From then on every publish that
begins reaches them, whether anybody is there to read or not.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from zkms.discovery import Discovery
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
)
from zkms.membership import patterns_in
from zkms.operations import Check, Create, Delete, Operation, SetData
from zkms.patterns import is_pattern
from zkms.purge import delete_queue
from zkms.session import Session, failed_with
from zkms.tree import Ledger, Patterns, Plan, QueueState, Registration, Tree, decode, encode, lanes_of

log = logging.getLogger("zkms.enrolment")
_MOVED = (NodeMissing, NodeExists, BadVersion)
"""Somebody else was quicker: look again."""


class Enrolment:
    """Registers what is persistent. Thread-safe."""

    def __init__(self, session: Session, tree: Tree, client_id: str) -> None:
        self._session = session
        self._tree = tree
        self._client_id = client_id

    def enrol(
        self, topic: str, name: str, wanted: Registration, ledgers: Sequence[Ledger] = ()
    ) -> tuple[Registration, bool]:
        """Register, unless that is done; the registration as it is, and whether we made it.

        `ledgers` are those of its lanes, where what waits in its queues is known from before.
        `GroupMismatch` if one of that name is there that is of another kind, or has other partitions or selectors.
        """
        deadline = time.monotonic() + self._session.config.request_timeout
        tried = False
        while True:
            found = self.find(topic, name)
            if found is not None:
                if tried and found == wanted:
                    return found, True  # by the attempt whose answer was lost
                _compare(topic, name, found, wanted)
                return found, False
            try:
                self._session.multi(self._operations(topic, name, wanted, ledgers), deadline=deadline)
                return wanted, True
            except TransactionFailed as error:
                if not isinstance(error.cause, _MOVED) or time.monotonic() >= deadline:
                    raise error.cause from error
                self.make_topic(topic)
            except ConnectionLost:
                tried = True
                if time.monotonic() >= deadline:
                    raise

    def find(self, topic: str, name: str) -> Registration | None:
        """The registration of that name."""
        path = self._tree.registration(topic, name)
        try:
            return decode(self._session.get(path)[0], Registration)
        except NodeMissing:
            return None
        except msgspec.MsgspecError as error:
            raise StoreError(f"overwritten by another program: {error}", path=path) from error

    def _operations(self, topic: str, name: str, wanted: Registration, ledgers: Sequence[Ledger]) -> list[Operation]:
        tree = self._tree
        operations: list[Operation] = []
        lanes = lanes_of(name, wanted)
        for lane in lanes:
            if self._session.exists(tree.subscription(lane)) is None:
                operations.append(Create(tree.subscription(lane)))
            operations.append(self._queue(tree.queue(lane, topic)))
        group, parent = tree.group(name, topic), tree.ledgers(name, topic)
        if self._session.exists(group.rpartition("/")[0]) is None:
            operations.append(Create(group.rpartition("/")[0]))
        fresh = {group: encode(Plan()), tree.members(name, topic): b"", parent: b""}
        for number in range(len(lanes)):
            fresh[tree.ledger(name, topic, number)] = encode(ledgers[number] if ledgers else Ledger())
        operations += self._put(fresh)
        operations += [Delete(path) for path in self._below(parent) if path not in fresh]
        operations += [Create(tree.registration(topic, name), encode(wanted)), SetData(tree.topic(topic), b"")]
        return operations

    def _put(self, fresh: Mapping[str, bytes]) -> list[Operation]:
        """Make znodes, or take over what a subscription that is gone has left: never what is being made meanwhile.

        Whoever is first creates the registration in the same transaction, and that refuses the others.
        """
        asked = {path: self._session.exists_async(path) for path in fresh}
        stats = {
            path: self._session.answer(reply, partial(self._session.exists_async, path))
            for path, reply in asked.items()
        }
        return [
            Create(path, fresh[path]) if stat is None else SetData(path, fresh[path], stat.version)
            for path, stat in stats.items()
        ]

    def _below(self, path: str) -> list[str]:
        try:
            return [f"{path}/{name}" for name in self._session.children(path)[0]]
        except NodeMissing:
            return []

    def _queue(self, queue: str) -> Operation:
        state = encode(QueueState(self._client_id))
        try:
            data, stat = self._session.get(queue)
            if not decode(data, QueueState).gone:
                return SetData(queue, state, stat.version)  # its registration was removed by hand: what waits is kept
            self._delete_queue(queue, stat.version)
        except NodeMissing:
            pass  # as it should be
        except msgspec.MsgspecError:
            return SetData(queue, state)
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

    def remake(self, topic: str, name: str, number: int, lane: str) -> bool:
        """Make a lane's queue anew, with nothing known of it; False if it is there, or nobody subscribes any more."""
        queue = self._tree.queue(lane, topic)
        parent = self._tree.subscription(lane)
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

    def dismiss(self, topic: str, name: str, *, unless_used_by: str | None = None) -> int | None:
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
        lanes = lanes_of(name, registration)
        gone = encode(QueueState(self._client_id, gone="unsubscribed"))
        marks: list[Operation] = [SetData(self._tree.queue(lane, topic), gone) for lane in lanes]
        group = self._tree.group(name, topic)
        # Together, so that who enrols from now on finds all of it or nothing.
        wanted: list[Operation] = [
            *marks,
            Delete(self._tree.registration(topic, name)),
            SetData(self._tree.topic(topic), b""),
            *(Delete(self._tree.ledger(name, topic, number)) for number in range(len(lanes))),
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
        """Remove a queue that is marked as gone; one that was made anew in its place is not touched."""
        try:
            delete_queue(self._session, queue, [Check(queue, version)])
        except TransactionFailed as error:
            if not isinstance(error.cause, _MOVED) or error.operation.path != queue:
                raise error.cause from error
        try:
            self._session.multi([Delete(queue.rpartition("/")[0])])
        except TransactionFailed as error:
            if not (failed_with(error, NodeMissing) or failed_with(error, NotEmpty)):
                raise error.cause from error

    def members(self, topic: str, name: str) -> list[str]:
        """Who is there to read it."""
        return Discovery(self._session, self._tree).names(self._tree.members(name, topic))


def _compare(topic: str, name: str, found: Registration, wanted: Registration) -> None:
    if found.kind != wanted.kind:
        raise GroupMismatch(topic, name, f"and is {_KINDS[found.kind]}")
    if found.partitions != wanted.partitions:
        raise GroupMismatch(topic, name, f"with {found.partitions} partitions instead of {wanted.partitions}")
    if found.where != wanted.where:
        raise GroupMismatch(topic, name, f"with the selector {found.where} instead of {wanted.where}")


_KINDS = {"live": "a live subscription", "durable": "a durable subscription", "group": "a group"}
