"""The cleaner's election: ephemeral sequential znodes, the lowest leads, each watches the one before it.

A lead is a znode of one session. Every destructive transaction checks that znode, so a leader that was cut off past its
session can delete nothing more, whatever it believes: the znode is gone, and with it the transaction.
"""

from __future__ import annotations

import logging
import threading

from zkms.errors import NodeExists, NodeMissing, TransactionFailed
from zkms.operations import Check, Create, Delete
from zkms.session import Session, State, failed_with
from zkms.tree import Tree

log = logging.getLogger("zkms.cleaner")


class Lead:
    """The right to delete, as long as its znode lives."""

    def __init__(self, path: str, generation: int) -> None:
        self.path = path
        self.generation = generation

    @property
    def guard(self) -> tuple[Check]:
        """What every destructive transaction begins with."""
        return (Check(self.path, 0),)


class Election:
    """One candidate. Used by one thread; `wake` may be set by any."""

    def __init__(self, session: Session, tree: Tree, client_id: str) -> None:
        self.wake = threading.Event()
        """Set when something has changed and lead() should be asked again."""
        self._session = session
        self._tree = tree
        self._prefix = f"{client_id}_"
        self._candidate: str | None = None
        self._generation = 0
        session.listen(self.wake.set)

    def lead(self) -> Lead | None:
        """Stand for election if we do not, and return the lead if it is ours."""
        if self._candidate is None or self._generation != self._session.generation:
            self._stand()
        names, _ = self._session.children(self._tree.cleaner)
        order = sorted((name for name in names if _sequence(name) >= 0), key=_sequence)
        mine = self._candidate
        if mine is None or mine not in order:
            self._candidate = None  # expired since: stand again at the next call
            self.wake.set()
            return None
        place = order.index(mine)
        if place == 0:
            return Lead(f"{self._tree.cleaner}/{mine}", self._generation)
        # Only the one before us is watched: no herd runs when a leader goes.
        if self._session.exists(f"{self._tree.cleaner}/{order[place - 1]}", self.wake.set) is None:
            self.wake.set()
        return None

    def _stand(self) -> None:
        self._generation = self._session.generation
        # A candidate of ours may exist already, from a create whose answer was lost.
        names, _ = self._session.children(self._tree.cleaner)
        owner = (self._session.client_id or (0, b""))[0]
        for name in (n for n in names if n.startswith(self._prefix) and _sequence(n) >= 0):
            stat = self._session.exists(f"{self._tree.cleaner}/{name}")
            if stat is not None and stat.ephemeralOwner == owner:
                self._candidate = name
                return
        path = f"{self._tree.cleaner}/{self._prefix}"
        try:
            results = self._session.multi([Create(path, ephemeral=True, sequence=True)])
        except TransactionFailed as error:
            if failed_with(error, NodeExists) or failed_with(error, NodeMissing):
                raise error.cause from error
            raise
        self._candidate = str(results[0]).rsplit("/", 1)[1]

    def resign(self) -> None:
        """Step down, so that the next one leads at once."""
        if self._candidate is None or self._session.state is not State.CONNECTED:
            return
        try:
            self._session.multi([Delete(f"{self._tree.cleaner}/{self._candidate}")])
        except TransactionFailed as error:
            if not failed_with(error, NodeMissing):
                raise error.cause from error
        self._candidate = None


def _sequence(name: str) -> int:
    tail = name[-10:]
    return int(tail) if len(name) > 10 and tail.isascii() and tail.isdigit() else -1
