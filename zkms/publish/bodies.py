"""Bodies: a big frame is stored once, and every queue gets a small entry whose name points to it.

Body and entries are created in one transaction, so a body that no queue names any more has been read and acked by
everybody it was for. A producer therefore frees its own bodies by looking: it lists the queues that it sent them to,
and deletes the bodies that no name points to. It never deletes a body before the reply of its transaction has come, and
the queues are listed after that, so a name that is not there is one that was removed. What a dead producer leaves
behind is the cleaner's to find, in the same way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from functools import partial

from zkms.errors import NodeExists, NodeMissing, TransactionFailed
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree
from zkms.zookeeper.deletion import delete_many
from zkms.zookeeper.operations import Create
from zkms.zookeeper.session import Session, failed_with

log = logging.getLogger("zkms.bodies")
SWEEP_BYTES = 4 * 1024 * 1024
"""Look for bodies to free after so much has been stored."""
MAX_BYTES = 256 * 1024 * 1024
"""Past this, publishing waits until something could be freed: ZooKeeper keeps all of it in memory."""


class Bodies:
    """What one producer has stored and not freed yet. Thread-safe."""

    def __init__(self, session: Session, tree: Tree, producer: str) -> None:
        self._session = session
        self._tree = tree
        self._producer = producer
        self.path = tree.bodies_of(producer)
        """Where they are kept."""
        self._kept: dict[int, tuple[int, tuple[str, ...] | None]] = {}
        """By number: its bytes, and the queues that were given its name (None: not known, so all are looked at)."""
        self._bytes = 0
        self._fresh = 0
        self._lock = threading.Lock()

    def claim(self) -> None:
        """Make the place for bodies, and take over those of an earlier process under this producer's name."""
        try:
            self._session.multi([Create(self.path)])
            return
        except TransactionFailed as error:
            if not failed_with(error, NodeExists):
                raise error.cause from error
        names, _ = self._session.children(self.path)
        with self._lock:
            for name in names:
                if name.isascii() and name.isdigit():
                    self._kept.setdefault(int(name), (0, None))

    def add(self, seq: int, size: int, queues: tuple[str, ...]) -> None:
        """A body has been stored."""
        with self._lock:
            self._kept[seq] = (size, queues)
            self._bytes += size
            self._fresh += size

    @property
    def kept(self) -> int:
        """How many bodies may still be there."""
        return len(self._kept)

    @property
    def due(self) -> bool:
        """Whether it is time to look for bodies to free."""
        return self._fresh >= SWEEP_BYTES

    @property
    def full(self) -> bool:
        """Whether publishing has to wait."""
        return self._bytes >= MAX_BYTES

    def sweep(self) -> int:
        """Free the bodies that no queue names any more, and return how many that were."""
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

        delete_many(self._session, free, 0, freed)
        return len(free)


def names_in(session: Session, queues: Iterable[str]) -> set[tuple[str, int]]:
    """Producer and number of every body that an entry of these queues points to; one pipelined listing a queue."""
    found: set[tuple[str, int]] = set()
    asks = [partial(session.children_async, queue) for queue in queues]
    for ask, reply in [(ask, ask()) for ask in asks]:
        try:
            names, _ = session.answer(reply, ask)
        except NodeMissing:
            continue  # with the queue, all its names are gone
        found.update(entry.body for entry in map(parse_entry, names) if entry.body is not None)
    return found


def all_queues(session: Session, tree: Tree) -> list[str]:
    """The paths of all queues of the tree."""
    owners = session.children(tree.messages)[0]
    asks = [partial(session.children_async, tree.subscription(owner)) for owner in owners]
    found = []
    for owner, ask, reply in [(owner, ask, ask()) for owner, ask in zip(owners, asks, strict=True)]:
        try:
            found += [tree.queue(owner, topic) for topic in session.answer(reply, ask)[0]]
        except NodeMissing:
            continue
    return found
