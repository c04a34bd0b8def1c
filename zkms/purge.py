"""Removes queues and what is in them, in large transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from zkms.errors import ConnectionLost, NodeMissing, NotEmpty, TransactionFailed
from zkms.operations import Delete, Operation
from zkms.session import Session, failed_with

BATCH = 1000
IN_FLIGHT = 4


def delete_children(
    session: Session,
    parent: str,
    guard: Sequence[Operation] = (),
    progress: Callable[[int], None] = lambda _count: None,
) -> int:
    """Delete all children of a znode and return how many; every transaction begins with `guard`.

    A refused guard raises `TransactionFailed`, and nothing more is deleted. A lost connection is waited for.
    """
    deleted = 0
    while True:
        try:
            names, _ = session.children(parent)
        except NodeMissing:
            return deleted
        if not names:
            return deleted
        before = deleted
        deleted += _delete_batch(session, [f"{parent}/{name}" for name in names], guard, progress)
        if deleted == before:
            # Somebody else deletes here too, or one of them has children: one by one, to get past it.
            deleted += _delete_singly(session, [f"{parent}/{name}" for name in names], guard)


def _delete_batch(
    session: Session, paths: list[str], guard: Sequence[Operation], progress: Callable[[int], None]
) -> int:
    deleted = 0
    under_way: deque[tuple[int, Future[list[Any]]]] = deque()
    session.wait_connected(session.config.request_timeout)
    chunks = [paths[i : i + BATCH] for i in range(0, len(paths), BATCH)]
    failed = False
    while chunks or under_way:
        while chunks and len(under_way) < IN_FLIGHT and not failed:
            chunk = chunks.pop(0)
            under_way.append((len(chunk), session.multi_async([*guard, *map(Delete, chunk)])))
        if not under_way:
            break
        count, reply = under_way.popleft()
        try:
            reply.result(session.config.request_timeout)
        except ConnectionLost:
            failed = True  # what is left is listed again by the caller
        except TransactionFailed as error:
            if error.index < len(guard):
                raise
            failed = True
        else:
            deleted += count
            progress(count)
    return deleted


def _delete_singly(session: Session, paths: list[str], guard: Sequence[Operation]) -> int:
    deleted = 0
    for path in paths:
        try:
            session.multi([*guard, Delete(path)])
            deleted += 1
        except TransactionFailed as error:
            if error.index < len(guard):
                raise
            if failed_with(error, NotEmpty):
                deleted += delete_children(session, path, guard)
            elif not failed_with(error, NodeMissing):
                raise error.cause from error
    return deleted


def delete_queue(
    session: Session,
    queue: str,
    guard: Sequence[Operation] = (),
    progress: Callable[[int], None] = lambda _count: None,
) -> int:
    """Delete a queue with its entries, and its subscription's znode if that was the last one; return the entries."""
    deleted = 0
    while True:
        deleted += delete_children(session, queue, guard, progress)
        try:
            session.multi([*guard, Delete(queue)])
        except TransactionFailed as error:
            if error.index < len(guard):
                raise
            if failed_with(error, NotEmpty):
                continue
            if not failed_with(error, NodeMissing):
                raise error.cause from error
        except ConnectionLost:
            continue
        break
    try:
        session.multi([*guard, Delete(queue.rsplit("/", 1)[0])])
    except TransactionFailed as error:
        if error.index < len(guard):
            raise
        if not (failed_with(error, NotEmpty) or failed_with(error, NodeMissing)):
            raise error.cause from error
    return deleted
