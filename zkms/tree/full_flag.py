"""The flag of a queue that was full, in the hands of its reader, who has come to the gap behind it and takes it down.

A publisher flags a queue and leaves the gap in one transaction; limits.py says when. Only its reader takes it down.
If the answer to that is lost, and it is tried again, a flag may stand there that was put up since, for a gap that the
reader has not come to yet: that one stays.
"""

from __future__ import annotations

from zkms.errors import NodeMissing
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Delete, SetData
from zkms.zookeeper.recipes import attempt
from zkms.zookeeper.session import Session


class FullFlag:
    """The one that stands when a gap has been reached, if there is one."""

    def __init__(self, session: Session, tree: Tree, topic: str, subscription: str) -> None:
        self._session = session
        self._path = tree.full_flag(topic, subscription)
        self._topic = tree.topic(topic)
        self._put_up = 0
        """The transaction that put it up; 0 before the first look."""

    def take_down(self) -> None:
        """Let publishers send again; after a `ConnectionLost` once more, until it is done."""
        while True:
            stat = self._session.exists(self._path)
            if stat is None or self._put_up not in (0, stat.czxid):
                return  # down already
            self._put_up = stat.czxid
            # Publishers hear of it by the topic's epoch, unless somebody has removed that: then they look anyway.
            bump = [SetData(self._topic, b"")] if self._session.exists(self._topic) is not None else []
            if attempt(self._session, [Delete(self._path), *bump], NodeMissing).stored:
                return
