"""The cleaner's election: ephemeral sequential znodes, the lowest leads, each watches the one before it.

A lead is a znode of one session. Every destructive transaction checks that znode, so a leader that was cut off past its
session can delete nothing more, whatever it believes: the znode is gone, and with it the transaction.
"""

from __future__ import annotations

import logging
import threading

from zkms.errors import ConnectionLost, NodeMissing, StoreError, TransactionFailed
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Check, Create, Delete, Operation
from zkms.zookeeper.recipes import attempt
from zkms.zookeeper.session import Session, State

log = logging.getLogger("zkms.cleaner")


class Lead:
    """The right to delete, as long as its znode exists."""

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def guard(self) -> tuple[Operation, ...]:
        """What every destructive transaction begins with."""
        return (Check(self.path, -1),)

    def lost_by(self, error: StoreError) -> bool:
        """Whether a transaction was refused because we do not lead any more."""
        return isinstance(error, TransactionFailed) and error.operation.path == self.path


class Election:
    """One candidate of the election. Used by one thread; `wake` may be set by any."""

    def __init__(self, session: Session, tree: Tree, client_id: str) -> None:
        self.wake = threading.Event()
        """Set when something has changed and lead() should be asked again."""
        self.leader: str | None = None
        """Name of the candidate that leads, as long as it is not us."""
        self._session = session
        self._parent = tree.cleaner
        self._prefix = f"{client_id}_"
        self._candidate: str | None = None
        self._generation = 0
        self._watched: str | None = None
        session.listen(self._session_changed)

    @property
    def standing(self) -> bool:
        """Whether we are a candidate in the current session."""
        return self._candidate is not None and self._generation == self._session.generation

    def lead(self) -> Lead | None:
        """Stand for election if we do not, and return the lead if it is ours."""
        if not self.standing:
            self._stand()
        elif self._watched is not None:
            return None  # the one before us is there still: its watch would have fired
        names, _ = self._session.children(self._parent)
        order = sorted((name for name in names if _sequence(name) >= 0), key=_sequence)
        if self._candidate not in order:
            self._candidate = None  # expired since, or removed by hand: stand again at the next call
            self.wake.set()
            return None
        order = [name for name in order if name == self._candidate or not self._is_a_leftover(name)]
        for name in reversed(order[: order.index(self._candidate)]):
            if self._waits_for(name):
                self.leader = order[0]
                return None
        self.leader = None
        return Lead(f"{self._parent}/{self._candidate}")

    def _stand(self) -> None:
        self._generation = self._session.generation
        self._candidate = self._watched = None
        candidate = Create(f"{self._parent}/{self._prefix}", ephemeral=True, sequence=True)
        [path] = attempt(self._session, [candidate]).results
        self._candidate = str(path).rsplit("/", 1)[1]

    def _waits_for(self, name: str) -> bool:
        """Whether the candidate before us is to be waited for; only that one is watched, a change wakes one."""
        path = f"{self._parent}/{name}"
        stat = self._session.exists(path)
        if stat is None:
            return False
        if stat.ephemeralOwner == 0:
            log.warning("%s is no candidate, since no session holds it: ignored", path)
            return False
        self._watched = name  # first, since the watch may fire before its request has returned here
        try:
            gone = self._session.exists(path, lambda: self._ring(name)) is None
        except BaseException:
            self._watched = None
            raise
        if gone:
            self._watched = None
        return not gone

    def _is_a_leftover(self, name: str) -> bool:
        """Whether it is ours too, from a create whose answer was lost: then it is removed.

        Others would wait for it, and we for them, for ever.
        """
        if not name.startswith(self._prefix):
            return False
        path = f"{self._parent}/{name}"
        stat = self._session.exists(path)
        owner, _ = self._session.client_id or (0, b"")
        if stat is None or stat.ephemeralOwner != owner:
            return False
        self._delete(path)
        return True

    def _ring(self, name: str) -> None:
        if self._watched == name:
            self._watched = None
        self.wake.set()

    def _session_changed(self) -> None:
        self._watched = None  # a client that was replaced has taken its watches with it
        self.wake.set()

    def resign(self) -> None:
        """Step down, so that the next one leads at once."""
        if self._candidate is None or self._session.state is not State.CONNECTED:
            return
        self._delete(f"{self._parent}/{self._candidate}")
        self._candidate = self._watched = None

    def _delete(self, path: str) -> None:
        try:
            attempt(self._session, [Delete(path)], NodeMissing)
        except ConnectionLost as error:
            log.info("%s may still be there, until the session ends: %s", path, error)


def _sequence(name: str) -> int:
    tail = name[-10:]
    return int(tail) if len(name) > 10 and tail.isascii() and tail.isdigit() else -1
