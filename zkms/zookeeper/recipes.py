"""What many rooms do with a session, written once: try a transaction, make parents, read many znodes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from zkms.errors import ConnectionLost, NodeExists, NodeMissing, StoreError, TransactionFailed
from zkms.zookeeper.operations import Create, Delete, Operation
from zkms.zookeeper.session import Session
from zkms.zookeeper.wire import Stat

A = TypeVar("A")
B = TypeVar("B")
WINDOW = 128
"""Requests in flight at the most."""


class Attempt(NamedTuple):
    """What came of a transaction: its results, or why it was refused."""

    results: list[Any]
    refused: TransactionFailed | None

    @property
    def stored(self) -> bool:
        """Whether it was carried out."""
        return self.refused is None


def attempt(
    session: Session,
    operations: Sequence[Operation],
    *expected: type[StoreError],
    deadline: float | None = None,
) -> Attempt:
    """Carry out a transaction that may be refused: a refusal with an expected cause is returned, any other is raised.

    What is raised is the cause itself, such as `Unauthorised`. `ConnectionLost` is raised as `Session.multi` raises it.
    """
    try:
        return Attempt(session.multi(operations, deadline=deadline), None)
    except TransactionFailed as error:
        if not isinstance(error.cause, expected):
            raise error.cause from error
        return Attempt([], error)


def absent(path: str) -> tuple[Operation, Operation]:
    """Operations that refuse a transaction with `NodeExists` if a znode is there, and leave nothing behind."""
    return Create(path), Delete(path)


def create_if_missing(session: Session, *paths: str, data: bytes = b"") -> bool:
    """Make each of these persistent znodes that is not there, parents first; True if one of them was made, or may be.

    Looks first: ZooKeeper refuses a create for lack of rights before it says that the znode is there. `NodeMissing` if
    a parent that is not among them is missing.
    """
    made = False
    for path in paths:
        while session.exists(path) is None:
            try:
                made = attempt(session, [Create(path, data)], NodeExists).stored or made
                break
            except ConnectionLost as error:
                if not error.outcome_unknown:
                    raise
                made = True  # or not: a look tells whether it is there now
    return made


def children_of(session: Session, path: str) -> list[str]:
    """The names of a znode's children, sorted; none if it does not exist."""
    try:
        return sorted(session.children(path)[0])
    except NodeMissing:
        return []


def read_many(
    session: Session,
    things: Iterable[A],
    ask: Callable[[A], Future[B]],
    failed: Callable[[A, StoreError], None] | None = None,
) -> dict[A, B]:
    """Send one pipelined request for each thing, and return the answers by thing.

    Those whose znode is missing are left out. So are those that fail otherwise, if `failed` takes the error.
    """
    answers = {}
    pending = [*things]
    for start in range(0, len(pending), WINDOW):
        replies = [(thing, ask(thing)) for thing in pending[start : start + WINDOW]]
        for thing, reply in replies:
            try:
                answers[thing] = session.answer(reply, partial(ask, thing))
            except NodeMissing:
                continue
            except StoreError as error:
                if failed is None:
                    raise
                failed(thing, error)
    return answers


def grandchildren_of(
    session: Session, path: str, only: Callable[[str], bool] = lambda _name: True
) -> dict[str, tuple[list[str], Stat]]:
    """By the name of each child of a znode: the sorted names of that child's children, and its Stat.

    `only` chooses among the children. Those that are deleted meanwhile are left out, as in `read_many`.
    """
    chosen = filter(only, children_of(session, path))
    listed = read_many(session, chosen, lambda name: session.children_async(f"{path}/{name}"))
    return {name: (sorted(below), stat) for name, (below, stat) in listed.items()}


def stats_of(session: Session, things: Iterable[A], path: Callable[[A], str]) -> dict[A, Stat]:
    """The Stat of each thing's znode; things without a znode are left out."""
    stats = read_many(session, things, lambda thing: session.exists_async(path(thing)))
    return {thing: stat for thing, stat in stats.items() if stat is not None}


def in_chunks(
    things: Iterable[A], measure: Callable[[A], tuple[int, int]], most: int, most_bytes: int
) -> Iterator[list[A]]:
    """Split things, in their order, into lists that stay within two limits; what exceeds one by itself is alone.

    `measure` tells how many a thing counts for, and its bytes.
    """
    chunk: list[A] = []
    count = size = 0
    for thing in things:
        more, added = measure(thing)
        if chunk and (count + more > most or size + added > most_bytes):
            yield chunk
            chunk, count, size = [], 0, 0
        chunk.append(thing)
        count += more
        size += added
    if chunk:
        yield chunk


def count_created(stat: Stat) -> int:
    """How many children a znode ever had. ZooKeeper counts creates and deletes together, in 32 bits that wrap."""
    return ((stat.cversion + stat.numChildren) & 0xFFFFFFFF) // 2


def count_deleted(stat: Stat) -> int:
    """How many of a znode's children were deleted."""
    return count_created(stat) - stat.numChildren
