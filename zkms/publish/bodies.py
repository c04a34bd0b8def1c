"""Bodies: a big frame is stored once, and every queue gets a small entry whose name points to it.

One transaction creates the body and its entries, so a body without entries has been acked by all its subscriptions.
A producer therefore frees its own bodies: it lists the queues that it sent them to, and deletes the bodies that no
entry points to. It lists the queues only after the reply to the body's transaction, so a missing entry is one that was
removed. The cleaner frees the bodies of dead producers in the same way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from zkms.errors import NodeExists
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree
from zkms.zookeeper.deletion import delete_many
from zkms.zookeeper.operations import Create
from zkms.zookeeper.recipes import attempt, read_many
from zkms.zookeeper.session import Session

log = logging.getLogger("zkms.publish")
SWEEP_BYTES = 4 * 1024 * 1024
"""Look for bodies to free after this many bytes have been stored."""
MAX_BYTES = 256 * 1024 * 1024
"""The most bytes of bodies: publishing waits until some are freed, because ZooKeeper keeps all of it in memory."""


class Bodies:
    """The bodies of one producer that are not freed yet. Thread-safe."""

    def __init__(self, session: Session, tree: Tree, producer: str) -> None:
        self._session = session
        self._tree = tree
        self._producer = producer
        self.path = tree.bodies_of(producer)
        """Their parent."""
        self._kept: dict[int, tuple[int, tuple[str, ...] | None]] = {}
        """By number: its bytes, and the queues with an entry for it (None: unknown, so all queues are listed)."""
        self.full = False
        """Whether publishing has to wait."""
        self._bytes = 0
        self._fresh = 0
        self._lock = threading.Lock()

    def claim(self) -> None:
        """Create the parent of the bodies, or take over those of an earlier process with this producer's name."""
        if attempt(self._session, [Create(self.path)], NodeExists).stored:
            return
        names, _ = self._session.children(self.path)
        with self._lock:
            for name in names:
                if name.isascii() and name.isdigit():
                    self._kept.setdefault(int(name), (0, None))

    def add(self, seq: int, size: int, queues: tuple[str, ...]) -> None:
        """Note a body that has been stored."""
        with self._lock:
            self._kept[seq] = (size, queues)
            self._bytes += size
            self._fresh += size
            self.full = self._bytes >= MAX_BYTES

    @property
    def kept(self) -> int:
        """How many bodies may still be there."""
        return len(self._kept)

    @property
    def due(self) -> bool:
        """Whether it is time to look for bodies to free."""
        return self._fresh >= SWEEP_BYTES

    def sweep(self) -> int:
        """Delete the bodies that no entry points to, and return how many they were."""
        with self._lock:
            kept = dict(self._kept)
            self._fresh = 0
        if not kept:
            return 0
        queues: set[str] = set()
        for _, given in kept.values():
            if given is None:
                queues.update(all_queues(self._session, self._tree))
                break
            queues.update(given)
        named = {seq for producer, seq in names_in(self._session, queues) if producer == self._producer}
        free = {self._tree.body(self._producer, seq): seq for seq in sorted(kept.keys() - named)}

        def freed(paths: list[str]) -> None:
            with self._lock:
                for path in paths:
                    self._bytes -= self._kept.pop(free[path], (0, None))[0]
                self.full = self._bytes >= MAX_BYTES

        delete_many(self._session, free, 0, freed)
        return len(free)


def names_in(session: Session, queues: Iterable[str]) -> set[tuple[str, int]]:
    """Return producer and number of every body that an entry of these queues points to; the listings are pipelined."""
    listed = read_many(session, queues, session.children_async)  # a missing queue has no entries
    entries = (parse_entry(name) for names, _ in listed.values() for name in names)
    return {entry.body for entry in entries if entry.body is not None}


def all_queues(session: Session, tree: Tree) -> list[str]:
    """Return the paths of all queues of the tree."""
    owners = session.children(tree.messages)[0]
    topics = read_many(session, owners, lambda owner: session.children_async(tree.subscription(owner)))
    return [tree.queue(owner, topic) for owner, (names, _) in topics.items() for topic in names]
