"""Removes the entries of a queue, and stores the reason there, so that receipts do not count them as acked."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from zkms.errors import BadVersion, ConnectionLost, NodeMissing
from zkms.trail.hooks import Recorder
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import QueueState, decode_or_none, encode
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import SetData
from zkms.zookeeper.recipes import attempt
from zkms.zookeeper.session import Session


class Purgeable(NamedTuple):
    """The entries that purge() would remove from a queue."""

    entries: int
    last: int
    """The highest sequence among them."""


def purgeable(session: Session, tree: Tree, subscription: str, topic: str) -> Purgeable:
    """Count the entries of a queue without gaps, which the subscriber must see. `NodeMissing` without a queue."""
    names, _ = session.children(tree.queue(subscription, topic))
    sequences = [entry.sequence for entry in map(parse_entry, names) if not entry.gap]
    return Purgeable(len(sequences), max(sequences, default=-1))


def purge(
    session: Session,
    tree: Tree,
    subscription: str,
    topic: str,
    last: int,
    trail: Recorder,
    progress: Callable[[int], None] = lambda _count: None,
) -> int:
    """Remove the entries of a queue up to the sequence `last`, and return how many they were.

    The reason is stored in the queue first, where receipts read it. `NodeMissing` if another client removes the queue
    meanwhile.
    """
    queue, reason = tree.queue(subscription, topic), f"purged by {_user()}@{socket.gethostname()}"
    _store_reason(session, queue, last, reason)
    names: set[str] = set()

    def chosen(name: str) -> bool:
        entry = parse_entry(name)
        if entry.gap or entry.sequence > last:
            return False
        names.add(name)
        return True

    removed = delete_children(session, queue, progress=progress, only=chosen)
    trail.purged(subscription, topic, names, reason)
    return removed


def _store_reason(session: Session, queue: str, last: int, reason: str) -> None:
    while True:
        data, stat = session.get(queue)
        state = decode_or_none(data, QueueState) or QueueState("")
        changed = msgspec.structs.replace(state, dropped=max(last, state.dropped), reason=reason)
        try:
            if attempt(session, [SetData(queue, encode(changed), stat.version)], BadVersion, NodeMissing).stored:
                return
        except ConnectionLost:
            continue  # writing it twice does no harm


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return "somebody"
