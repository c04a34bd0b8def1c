"""Sets aside what was found in a queue and is not ours: moved to dead/, byte by byte, so that it blocks nothing."""

from __future__ import annotations

import logging

from zkms.errors import ConnectionLost, NodeExists, NodeMissing, NotEmpty, StoreError, TransactionFailed
from zkms.tree.paths import Tree
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import MAX_TRANSACTION, Create, Delete, Operation
from zkms.zookeeper.session import Session, failed_with

log = logging.getLogger("zkms.deliver")
MAX_KEPT = 1000
"""Entries kept for one queue: more than that is a flood, and would fill ZooKeeper's memory."""


def set_aside(session: Session, tree: Tree, entry: str, raw: bytes) -> str | None:
    """Move an entry to dead/ and return its new path; None if it was too large or too many are there already."""
    subscription, topic, name = entry.split("/")[-3:]
    shelf = tree.dead_queue(subscription, topic)
    _make(session, tree.dead_of(subscription), shelf)
    stat = session.exists(shelf)
    kept = f"{shelf}/{name}"
    operations: list[Operation] = [Delete(entry)]
    fits = stat is not None and stat.numChildren < MAX_KEPT and len(raw) < MAX_TRANSACTION // 2
    if fits:
        operations.append(Create(kept, raw))
    for _ in range(3):
        try:
            results = session.multi(operations)
            return str(results[1]) if fits else None
        except TransactionFailed as error:
            if failed_with(error, NodeMissing, path=entry):
                return kept if fits else None  # moved by the attempt whose answer was lost
            if failed_with(error, NodeMissing):
                _make(session, tree.dead_of(subscription), shelf)  # removed, since it was empty
            elif failed_with(error, NotEmpty):
                delete_children(session, entry)  # znodes below an entry cannot be ours either
            elif failed_with(error, NodeExists):
                operations[1:] = [Create(f"{kept}~", raw, sequence=True)]  # one of that name is there already
            else:
                raise error.cause from error
        except ConnectionLost as error:
            if not error.outcome_unknown:
                raise
    raise StoreError("cannot be moved", path=entry)


def _make(session: Session, *paths: str) -> None:
    for path in paths:
        if session.exists(path) is None:
            try:
                session.multi([Create(path)])
            except TransactionFailed as error:
                if not failed_with(error, NodeExists):
                    raise error.cause from error
