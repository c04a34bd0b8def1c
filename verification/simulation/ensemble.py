"""A simulated ZooKeeper ensemble with several replicas: sessions, watches, late and lost replies.

Writes are committed at once, in the order of arrival, and reach each replica a little later. A client is connected to
one replica and sees its tree. Its requests are answered in order: a read waits for the writes before it. Watch events
come before the replies that show the same change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from verification.simulation import wire
from verification.simulation.clockwork import World
from verification.simulation.store import (
    NO_NODE,
    Leader,
    Refused,
    Transaction,
    Tree,
    parent_of,
)
from zkms.zookeeper.operations import Operation
from zkms.zookeeper.wire import CHILD, CREATED, DELETED

LAG = 0.02
"""The most seconds that a replica normally lags."""
LATENCY = 0.004
SLOW = 40
"""The factor by which a slow network is slower."""


@dataclass
class Session:
    """A client's session."""

    number: int
    password: bytes
    timeout: float
    heard: float
    connection: Connection | None = None
    ended: bool = False


@dataclass
class _Due:
    """A reply in the order of replies: a known one that waits for the replica, or a read that is not done yet."""

    zxid: int
    answer: Callable[[], bytes]


@dataclass
class Watches:
    """The watches of one connection."""

    data: set[str] = field(default_factory=set)
    children: set[str] = field(default_factory=set)
    always: set[str] = field(default_factory=set)


class Replica:
    """One server with its copy of the tree."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self.tree = Tree()
        self.applied = 0
        self.connections: list[Connection] = []

    def hear(self, upto: int) -> None:
        """Apply the leader's transactions up to this one."""
        log = self._ensemble.leader.log
        while self.applied < upto:
            transaction = log[self.applied]
            self.applied += 1
            self.tree.apply(transaction)
            for connection in [*self.connections]:
                connection.tell(transaction)
        for connection in [*self.connections]:
            connection.answer()


class Connection:
    """The server's end of a connection, and the network in both directions."""

    def __init__(
        self,
        ensemble: Ensemble,
        replica: Replica,
        session: Session,
        deliver: Callable[[bytes], None],
        broke: Callable[[], None],
    ) -> None:
        running = ensemble.world.current
        self.process = None if running is None else running.process
        """The process of the client."""
        self._ensemble = ensemble
        self._world = ensemble.world
        self.replica = replica
        self.session = session
        self._deliver = deliver
        self._broke = broke
        self.open = True
        self._hears = True
        """Whether sent requests still arrive at the server."""
        self.black_hole = False
        self.armed: str | None = None
        """"before" or "after": break before or after the next transaction."""
        self._row: deque[_Due] = deque()
        self._watches = Watches()
        self._there = self._back = 0.0
        self._last = 0
        """The newest transaction of this connection."""
        replica.connections.append(self)

    # -- the network ---------------------------------------------------------------------------------------------

    def send(self, raw: bytes) -> None:
        """Take requests from the client as bytes; b"" is a ping."""
        self._there = max(self._there, self._world.now + self._ensemble.latency())
        self._world.call_at(self._there, self._arrive, raw)

    def _arrive(self, raw: bytes) -> None:
        if not self._hears or self.black_hole or not self._ensemble.up or self.session.ended:
            return
        self.session.heard = self._world.now
        if not raw:
            self._send_back(wire.reply(-2, 0, 0))
        offset = 0
        while offset < len(raw):
            length, xid, code = wire.header(raw, offset)
            if code == wire.MULTI and self.armed == "before":
                self.cut(arrives=False)
                return
            self._handle(xid, code, raw[offset + 12 : offset + 4 + length])
            offset += 4 + length
            if code == wire.MULTI and self.armed == "after":
                self.cut(arrives=True)
                return
        self.answer()

    def _send_back(self, frame: bytes) -> None:
        if self.open and not self.black_hole:
            self._back = max(self._back, self._world.now + self._ensemble.latency())
            self._world.call_at(self._back, self._reach, frame)

    def _reach(self, frame: bytes) -> None:
        if self.open and not self.black_hole:
            self._deliver(frame)

    def cut(self, *, arrives: bool) -> None:
        """Break it. Sent requests may still arrive and be executed; no reply comes."""
        if self.open:
            self.open = False
            self._hears = arrives
            self.replica.connections.remove(self)
            self._broke()

    def forsake(self) -> None:
        """Ignore further requests: its session has moved to another connection, or has ended."""
        self._hears = False
        self.cut(arrives=False)

    # -- requests ------------------------------------------------------------------------------------------------

    def _handle(self, xid: int, code: int, raw: bytes) -> None:
        if code == wire.MULTI:
            body = self._write(raw)
            zxid = self._last = self._ensemble.leader.zxid
            self._row.append(_Due(zxid, lambda: wire.reply(xid, zxid, 0, body)))
        else:
            self._row.append(_Due(self._last, lambda: self._read(xid, code, raw)))

    def _write(self, raw: bytes) -> bytes:
        operations = wire.read_operations(raw)
        try:
            values = self._ensemble.write(operations, self.session.number)
        except Refused as refusal:
            return wire.refused(operations, refusal.index, refusal.code)
        return wire.results(operations, values)

    def answer(self) -> None:
        """Send the replies that are ready, in order."""
        while self._row and self._row[0].zxid <= self.replica.tree.zxid:
            self._send_back(self._row.popleft().answer())

    def _read(self, xid: int, code: int, raw: bytes) -> bytes:
        tree = self.replica.tree
        path, watch = wire.read_path(raw) if code in (wire.GET, wire.EXISTS, wire.CHILDREN) else (wire.path(raw), False)
        zxid = tree.zxid
        if code == wire.ADD_WATCH:
            self._watches.always.add(path)
            return wire.reply(xid, zxid, 0)
        if code == wire.REMOVE_WATCHES:
            for watches in (self._watches.data, self._watches.children, self._watches.always):
                watches.discard(path)
            return wire.reply(xid, zxid, 0)
        znode = tree.znodes.get(path)
        if watch and (znode is not None or code == wire.EXISTS):
            (self._watches.children if code == wire.CHILDREN else self._watches.data).add(path)
        if znode is None:
            return wire.reply(xid, zxid, NO_NODE)
        if code == wire.GET:
            return wire.reply(xid, zxid, 0, wire.data(znode.data, znode.stat()))
        if code == wire.EXISTS:
            return wire.reply(xid, zxid, 0, wire.stat(znode.stat()))
        if code == wire.CHILDREN:
            return wire.reply(xid, zxid, 0, wire.children(sorted(znode.children), znode.stat()))
        raise ValueError(f"no request of zkms has code {code}")

    # -- watches -------------------------------------------------------------------------------------------------

    def tell(self, transaction: Transaction) -> None:
        """Send the watch events of a transaction."""
        watches = self._watches
        for change in transaction.changes:
            path = change.path
            gone = change.kind == DELETED
            mine = path in watches.data or (gone and path in watches.children) or self._always(path)
            watches.data.discard(path)
            if gone:
                watches.children.discard(path)
            if mine:
                self._send_back(wire.event(transaction.zxid, change.kind, path))
            parent = parent_of(path)
            if change.kind in (CREATED, DELETED) and parent in watches.children:
                watches.children.discard(parent)
                self._send_back(wire.event(transaction.zxid, CHILD, parent))

    def _always(self, path: str) -> bool:
        always = self._watches.always
        while always:
            if path in always:
                return True
            if path == "/":
                return False
            path = parent_of(path)
        return False


Edit = Callable[["Ensemble", Sequence[Operation], int], list[Operation]]
"""Changes a transaction before it is committed; also gets the session's number."""


class Ensemble:
    """The servers of a world."""

    def __init__(self, world: World, replicas: int = 2) -> None:
        self.world = world
        self.leader = Leader()
        self.replicas = [Replica(self) for _ in range(replicas)]
        self.sessions: dict[int, Session] = {}
        self.up = True
        self.slow = False
        self.edit: Edit | None = None
        """Applied to each transaction before it is committed: see mechanisms.py."""

    def latency(self) -> float:
        """Return the seconds that a packet takes."""
        value = self.world.random.random() * LATENCY
        return value * SLOW if self.slow else value

    @property
    def connections(self) -> list[Connection]:
        """Return the open connections."""
        return [connection for replica in self.replicas for connection in replica.connections]

    def write(self, operations: list[Operation], session: int) -> list[wire.Result]:
        """Commit a transaction; the replicas get it soon."""
        kept = operations if self.edit is None else self.edit(self, operations, session)
        try:
            values = self.leader.transact(kept, session, self._milliseconds())
        finally:
            self._spread()
        if kept is not operations:
            values = _as_asked(operations, kept, values)
        return values

    def _spread(self) -> None:
        upto = len(self.leader.log)
        for replica in self.replicas:
            lag = self.world.random.random() * LAG * (SLOW if self.slow else 1)
            self.world.call_in(lag, replica.hear, upto)

    def _milliseconds(self) -> int:
        return int(self.world.wall() * 1000)

    # -- sessions ------------------------------------------------------------------------------------------------

    def connect(
        self,
        known: tuple[int, bytes] | None,
        timeout: float,
        seen: int,
        deliver: Callable[[bytes], None],
        broke: Callable[[], None],
    ) -> Connection | None:
        """Connect a client to one of the replicas; None if it does not accept connections now.

        A session that has ended gets a closed connection.
        """
        replica = self.replicas[int(self.world.random.random() * len(self.replicas))]
        if not self.up or replica.tree.zxid < seen:
            return None
        if known is None:
            number = 0x1_0000_0000 + self.world.number()
            session = Session(number, number.to_bytes(16, "big"), timeout, self.world.now)
            self.sessions[number] = session
            self.world.call_in(timeout, self._look_after, session)
        else:
            session = self.sessions[known[0]]
            if session.ended or session.password != known[1]:
                connection = Connection(self, replica, session, deliver, lambda: None)
                connection.forsake()
                return connection
        if session.connection is not None:
            session.connection.forsake()
        session.heard = self.world.now
        session.connection = Connection(self, replica, session, deliver, broke)
        return session.connection

    def _look_after(self, session: Session) -> None:
        if session.ended:
            return
        if not self.up:  # sessions do not expire while there is no leader
            self.world.call_in(session.timeout, self._look_after, session)
            return
        left = session.heard + session.timeout - self.world.now
        if left > 1e-6:
            self.world.call_in(left, self._look_after, session)
        else:
            self.end(session)

    def end(self, session: Session) -> None:
        """Expire or close a session, and remove its ephemerals."""
        if session.ended:
            return
        session.ended = True
        self.leader.expire(session.number, self._milliseconds())
        self._spread()
        if session.connection is not None:
            session.connection.forsake()

    # -- faults --------------------------------------------------------------------------------------------------

    def go_down(self) -> None:
        """Stop answering until `come_up`; requests in flight are lost, commits are not."""
        self.up = False
        for connection in self.connections:
            connection.cut(arrives=False)

    def come_up(self) -> None:
        """Answer again, with a new leader: every session gets its full timeout."""
        self.up = True
        for session in self.sessions.values():
            session.heard = self.world.now


def _as_asked(
    operations: Sequence[Operation], kept: Sequence[Operation], values: Sequence[wire.Result]
) -> list[wire.Result]:
    """Return a result for each operation, also for those that an `Edit` left out."""
    results = iter(values)
    paths = [(type(each), each.path) for each in kept]
    return [next(results) if (type(each), each.path) in paths else True for each in operations]
