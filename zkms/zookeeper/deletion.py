"""Removes queues and what is in them, in large transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from zkms.errors import BadVersion, ConnectionLost, NodeMissing, NotEmpty, TransactionFailed
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Delete, Operation, transaction_size
from zkms.zookeeper.recipes import attempt, in_chunks, stats_of
from zkms.zookeeper.session import Session, failed_with

BATCH = 1000
BATCH_BYTES = MAX_TRANSACTION // 2
IN_FLIGHT = 4


def delete_children(
    session: Session,
    parent: str,
    guard: Sequence[Operation] = (),
    progress: Callable[[int], None] = lambda _count: None,
    only: Callable[[str], bool] = lambda _name: True,
) -> int:
    """Delete all that is below a znode and return how many znodes that were; `progress` may raise to stop.

    `only` chooses among the children by name.

    Every transaction begins with `guard`: where that is refused, `TransactionFailed` is raised and nothing more is
    deleted. A lost connection is waited for.
    """
    deleted = 0
    while True:
        try:
            names, _ = session.children(parent)
        except NodeMissing:
            return deleted
        names = list(filter(only, names))
        if not names:
            return deleted
        count, parents = _delete_all(session, [f"{parent}/{name}" for name in names], guard, progress)
        deleted += count
        for path in parents:  # entries have no children, so another program has made these
            deleted += delete_children(session, path, guard, progress)


def _delete_all(
    session: Session, paths: list[str], guard: Sequence[Operation], progress: Callable[[int], None]
) -> tuple[int, list[str]]:
    """How many were deleted, and which have children; what is left besides is to be listed again."""
    deleted = 0
    parents: list[str] = []
    under_way: deque[tuple[list[str], Future[list[Any]]]] = deque()
    chunks = _chunks(session, paths)
    chunk = next(chunks, None)
    lost = False
    session.wait_connected(session.config.request_timeout)
    while under_way or (chunk is not None and not lost):
        while chunk is not None and len(under_way) < IN_FLIGHT and not lost:
            under_way.append((chunk, session.multi_async([*guard, *map(Delete, chunk)])))
            chunk = next(chunks, None)
        sent, reply = under_way.popleft()
        try:
            reply.result(session.config.request_timeout)
        except (ConnectionLost, TimeoutError):
            lost = True
        except TransactionFailed as error:
            if error.index < len(guard):
                raise
            if failed_with(error, NotEmpty):
                parents += _with_children(session, sent)
            elif not failed_with(error, NodeMissing):  # that one somebody else has deleted
                raise error.cause from error
        else:
            deleted += len(sent)
            progress(len(sent))
    return deleted, parents


def _chunks(session: Session, paths: Iterable[str]) -> Iterator[list[str]]:
    """As many as one transaction deletes."""
    return in_chunks(paths, lambda path: (1, transaction_size([Delete(path)], session.overhead)), BATCH, BATCH_BYTES)


def _with_children(session: Session, paths: list[str]) -> list[str]:
    return [path for path, stat in stats_of(session, paths, str).items() if stat.numChildren]


def delete_many(
    session: Session, paths: Iterable[str], version: int = -1, done: Callable[[list[str]], None] = lambda _paths: None
) -> None:
    """Delete znodes without children, many in a transaction, and tell `done` of each lot; the missing are passed over.

    One that has another `version` (-1: any) raises `BadVersion`.
    """
    for chunk in _chunks(session, paths):
        if not attempt(session, [Delete(path, version) for path in chunk], NodeMissing).stored:
            for path in chunk:
                attempt(session, [Delete(path, version)], NodeMissing)
        done(chunk)


def delete_queue(
    session: Session,
    queue: str,
    guard: Sequence[Operation] = (),
    progress: Callable[[int], None] = lambda _count: None,
    seen: Callable[[str], object] = lambda _name: None,
    version: int = -1,
) -> int:
    """Delete a queue with its entries, and its subscription's znode if that was the last one; return the entries.

    `seen` gets the entries' names, some of them twice where ZooKeeper did not answer. Of a queue that has another
    `version` (-1: any), such as one that was made anew in its place, nothing is deleted: `TransactionFailed`.
    """
    fence: list[Operation] = [] if version < 0 else [Check(queue, version)]

    def every(name: str) -> bool:
        seen(name)
        return True

    deleted = 0
    while True:
        try:
            deleted += delete_children(session, queue, [*guard, *fence], progress, every)
            session.multi([*guard, Delete(queue, version)])
        except TransactionFailed as error:
            if error.index < len(guard) or failed_with(error, BadVersion, path=queue):
                raise
            if failed_with(error, NotEmpty):
                continue
            if not failed_with(error, NodeMissing):
                raise error.cause from error
        except ConnectionLost as error:
            if not error.outcome_unknown:
                raise
            continue
        break
    while True:
        try:
            session.multi([*guard, Delete(queue.rsplit("/", 1)[0])])
        except TransactionFailed as error:
            if error.index < len(guard):
                raise
            if not (failed_with(error, NotEmpty) or failed_with(error, NodeMissing)):
                raise error.cause from error
        except ConnectionLost as error:
            if error.outcome_unknown:
                continue
            raise
        return deleted
