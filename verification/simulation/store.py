"""ZooKeeper's tree as a pure model: no time, no network; compared with the real server in the tests.

`Leader` checks a transaction and returns its changes. `Tree` is the tree of a replica: it applies changes in order and
says which znodes they concern. Both identify znodes by path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from zkms.zookeeper.operations import Check, Create, Delete, Operation, SetData
from zkms.zookeeper.wire import CHANGED, CREATED, DELETED, Stat

NO_NODE, BAD_VERSION, NO_CHILDREN_FOR_EPHEMERALS, NODE_EXISTS, NOT_EMPTY = -101, -103, -108, -110, -111


@dataclass
class Znode:
    """One znode; `created` counts the children it ever had, which is where sequence numbers come from."""

    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    version: int = 0
    created: int = 0
    owner: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        """Return the Stat that a client sees: it has the changes of children, and creations are derived from it."""
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            self.created * 2 - len(self.children),
            0,
            self.owner,
            len(self.data),
            len(self.children),
            self.pzxid,
        )


@dataclass(frozen=True)
class Change:
    """One change of a transaction."""

    kind: int
    path: str
    data: bytes = b""
    owner: int = 0


@dataclass(frozen=True)
class Transaction:
    """A committed transaction."""

    zxid: int
    time: int
    changes: tuple[Change, ...]


def parent_of(path: str) -> str:
    """The znode above."""
    return path.rpartition("/")[0] or "/"


class Tree:
    """The znodes as of one zxid."""

    def __init__(self) -> None:
        self.zxid = 0
        self.znodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0, 0, 0)}

    def apply(self, transaction: Transaction) -> None:
        """Apply the next transaction."""
        for change in transaction.changes:
            self.change(change, transaction.zxid, transaction.time)
        self.zxid = transaction.zxid

    def change(self, change: Change, zxid: int, now: int) -> None:
        """Apply one change."""
        znodes, path = self.znodes, change.path
        if change.kind == CREATED:
            znodes[path] = Znode(change.data, zxid, zxid, zxid, now, now, owner=change.owner)
            parent = znodes[parent_of(path)]
            parent.children.add(path.rpartition("/")[2])
            parent.created += 1
            parent.pzxid = zxid
        elif change.kind == DELETED:
            del znodes[path]
            parent = znodes[parent_of(path)]
            parent.children.remove(path.rpartition("/")[2])
            parent.pzxid = zxid
        else:
            znode = znodes[path]
            znode.data, znode.mzxid, znode.mtime = change.data, zxid, now
            znode.version += 1


class _Step(NamedTuple):
    """A change, and how to undo it: the former znode, and its parent's last change of children."""

    change: Change
    before: Znode | None
    pzxid: int


class Refused(Exception):
    """A refused transaction: the operation that failed, and ZooKeeper's code for it."""

    def __init__(self, index: int, code: int) -> None:
        super().__init__(f"operation {index}: {code}")
        self.index = index
        self.code = code


class Leader:
    """Commits or refuses transactions, one after the other."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.log: list[Transaction] = []
        self.zxid = 0

    def transact(self, operations: Sequence[Operation], session: int, now: int) -> list[str | Stat | bool]:
        """Commit a transaction, add it to the log, and return a result for each operation; `Refused` if it fails."""
        zxid = self.zxid + 1
        undo: list[_Step] = []
        changes: list[Change] = []
        results: list[str | Stat | bool] = []
        for index, operation in enumerate(operations):
            try:
                change, result = self._decide(operation, session)
            except Refused as refusal:
                self._undo(undo)
                self._commit(zxid, now, ())  # a refusal has a zxid too: its client has seen everything before it
                raise Refused(index, refusal.code) from None
            if change is not None:
                undo.append(self._step(change))
                self.tree.change(change, zxid, now)
                changes.append(change)
                if isinstance(operation, SetData):
                    result = self.tree.znodes[change.path].stat()
            results.append(result)
        self._commit(zxid, now, tuple(changes))
        return results

    def _commit(self, zxid: int, now: int, changes: tuple[Change, ...]) -> None:
        self.zxid = self.tree.zxid = zxid
        self.log.append(Transaction(zxid, now, changes))

    def expire(self, session: int, now: int) -> None:
        """Remove a session's ephemerals."""
        mine = sorted(path for path, znode in self.tree.znodes.items() if znode.owner == session)
        if mine:
            self.transact([Delete(path) for path in mine], session, now)

    def _decide(self, operation: Operation, session: int) -> tuple[Change | None, str | Stat | bool]:
        znodes = self.tree.znodes
        if isinstance(operation, Create):
            parent = znodes.get(parent_of(operation.path))
            if parent is None:
                raise Refused(0, NO_NODE)
            path = f"{operation.path}{parent.created:010d}" if operation.sequence else operation.path
            if path in znodes:
                raise Refused(0, NODE_EXISTS)
            if parent.owner:
                raise Refused(0, NO_CHILDREN_FOR_EPHEMERALS)
            return Change(CREATED, path, operation.data, session if operation.ephemeral else 0), path
        znode = znodes.get(operation.path)
        if znode is None:
            raise Refused(0, NO_NODE)
        if operation.version not in (-1, znode.version):
            raise Refused(0, BAD_VERSION)
        if isinstance(operation, Check):
            return None, True
        if isinstance(operation, Delete):
            if znode.children:
                raise Refused(0, NOT_EMPTY)
            return Change(DELETED, operation.path), True
        return Change(CHANGED, operation.path, operation.data), True

    def _step(self, change: Change) -> _Step:
        znode = self.tree.znodes.get(change.path)
        before = None if znode is None else Znode(**{**vars(znode), "children": set(znode.children)})
        return _Step(change, before, self.tree.znodes[parent_of(change.path)].pzxid)

    def _undo(self, undo: list[_Step]) -> None:
        """Undo the changes of a refused transaction, also those of the parents' Stats."""
        for step in reversed(undo):
            path = step.change.path
            parent, name = self.tree.znodes[parent_of(path)], path.rpartition("/")[2]
            if step.before is not None:
                self.tree.znodes[path] = step.before
            if step.change.kind == CREATED:
                del self.tree.znodes[path]
                parent.children.discard(name)
                parent.created -= 1
            elif step.change.kind == DELETED:
                parent.children.add(name)
            parent.pzxid = step.pzxid
