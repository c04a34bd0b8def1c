"""The full flag of a queue, and how its reader clears it when it reaches the gap entry that came with the flag.

A publisher sets the flag and adds the gap in one transaction: see publish/limits.py. Only the queue's reader clears it.
If the reply to that is lost and the reader tries again, it may find a newer flag, whose gap it has not reached yet:
that one stays.
"""

from __future__ import annotations

from zkms.errors import NodeMissing
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Delete, SetData
from zkms.zookeeper.recipes import attempt
from zkms.zookeeper.session import Session


class FullFlag:
    """The flag that is set when the reader reaches a gap, if any."""

    def __init__(self, session: Session, tree: Tree, topic: str, subscription: str) -> None:
        self._session = session
        self._path = tree.full_flag(topic, subscription)
        self._topic = tree.topic(topic)
        self._set_by = 0
        """The transaction that set it; 0 before the first look."""

    def clear(self) -> None:
        """Let publishers send again. After a `ConnectionLost` call it again, until it returns."""
        while True:
            stat = self._session.exists(self._path)
            if stat is None or self._set_by not in (0, stat.czxid):
                return  # cleared already
            self._set_by = stat.czxid
            # Publishers notice it by the topic's epoch. If the topic's znode was removed, they read it anyway.
            bump = [SetData(self._topic, b"")] if self._session.exists(self._topic) is not None else []
            if attempt(self._session, [Delete(self._path), *bump], NodeMissing).stored:
                return
