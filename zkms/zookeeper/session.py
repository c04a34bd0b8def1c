"""The one seam to ZooKeeper: what is above it never sees kazoo.

A session owns the connection and its liveness. Requests are pipelined and answered in order, by a Future or by a call
on the connection's thread (see connection.py). Every request has a deadline: if a reply is overdue, the connection is
dropped and kazoo connects elsewhere. A kazoo client whose connection thread died is replaced. When ZooKeeper has
expired the session, a new one is opened and `generation` grows: whoever has ephemerals compares it and registers again.

Threads: the connection's, on which answers, events, changes of state and posted steps are told: nothing told there may
wait for ZooKeeper. And `zkms-session`, which looks after deadlines and the dead client, and never waits either.
"""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar

from kazoo.exceptions import AuthFailedError
from kazoo.protocol.states import KazooState, KeeperState

from zkms.config import Config
from zkms.errors import (
    BadVersion,
    Closed,
    ConnectionLost,
    StoreError,
    TransactionFailed,
    Unauthorised,
    Unsupported,
    UsedAfterFork,
    ZkmsError,
    translate,
)
from zkms.security import Access, identity
from zkms.zookeeper.connection import Connection, Done, Rung
from zkms.zookeeper.kazoo_client import Client
from zkms.zookeeper.operations import MAX_TRANSACTION, USUAL_ACL, Operation
from zkms.zookeeper.probe import diagnose
from zkms.zookeeper.wire import (
    AddWatch,
    Children,
    Exists,
    Get,
    GetAcl,
    Multi,
    RemoveWatches,
    Request,
    Stat,
    Watch,
    WhoAmI,
    acl_bytes,
)

log = logging.getLogger("zkms.zookeeper")
TICK = 0.25
FORGET_AFTER = 3
"""Reply deadlines, so two session times, without a connection after which no server is too old for us."""
_CONSEQUENCES = ("RolledBackError", "RuntimeInconsistency")
REVIVE_AFTER = 1.0
"""Seconds between two replacements of a dead kazoo client at the least."""

T = TypeVar("T")
__all__ = ["AclPolicy", "Session", "Stat", "State", "failed_with"]


class State(enum.Enum):
    """What the session is to its users."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """Cut off; the session may live on or expire."""
    REFUSED = "refused"
    """ZooKeeper does not accept our credentials, or we cannot even show them."""
    CLOSED = "closed"


class AclPolicy(Protocol):
    """Who may do what in a tree where roles trust each other with little: the tree's own, see tree/acl.py."""

    access: Access
    owner: tuple[str, ...]
    """Who we are as a subscriber: what our registrations say."""
    cleans: bool
    """Whether we may do a cleaner's work."""
    usual: int
    """Bytes of an ACL as most znodes have it."""

    def __call__(self, path: str) -> bytes:
        """The ACL of a znode that we make, by its place."""

    def readers(self, owner: tuple[str, ...]) -> tuple[bytes, ...]:
        """What makes up the ACL of an entry or a body that is for `owner` alone."""

    def accepts(self, owner: tuple[str, ...]) -> bool:
        """Whether a registration's owner is one of the subscribers, so that it may be sent something."""

    def differing(self, path: str, found: Mapping[str, int]) -> list[str]:
        """Who may do more or less with a znode than the policy says; `found` is what ZooKeeper tells of its ACL."""


class Session:
    """One connection and session with ZooKeeper, kept alive until close()."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.generation = 0
        """Grows by one with each new session: 1 is the first."""
        self.state = State.CONNECTING
        self.client_id: tuple[int, bytes] | None = None
        self.timeout = config.session_timeout
        """Seconds without a sign of us after which ZooKeeper expires the session, as it has granted them."""
        self.old_server = False
        """Whether a server was met that has no persistent watches (before 3.6)."""
        self._listeners: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._reply_deadline = max(1.0, config.session_timeout * 2 / 3)
        self._stop = threading.Event()
        self._forked = False
        self._failure: ZkmsError | None = None
        self._revived = 0.0
        self._zxid = 0
        self._lost: float | None = None
        """Since when we are not connected."""
        self._tls = config.tls.context() if config.tls else None
        self._acl = acl_bytes(config.effective_acl)
        self._connection = Connection()
        _sessions.add(self)
        self._client = self._new_client(None)
        self._chroot: str = self._client.chroot
        self.overhead = len(self._chroot.encode()) + max(0, len(self._acl) - USUAL_ACL)
        """Bytes that an operation of ours has more than usual: what `transaction_size` wants to know."""
        self.rights: AclPolicy | None = None
        """By what ACLs are chosen, in a tree that has a policy."""
        self._keeper = threading.Thread(target=self._keep, name="zkms-session", daemon=True)

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, or raise `ConnectionLost` or `Unauthorised` that says what was found at each host."""
        with self._changed:  # or a close() at the same time would leave what is started here behind
            if self.state is State.CLOSED:
                raise Closed("the bus is closed")
            self._client.start_async()
            self._keeper.start()
        try:
            self._wait_connected(time.monotonic() + self.config.connect_timeout)
        except ConnectionLost as error:
            self.close()
            found = diagnose(self.config.hosts, self._tls)
            raise ConnectionLost(
                f"no ZooKeeper answered within {self.config.connect_timeout:g} s: {found}", outcome_unknown=False
            ) from error
        except ZkmsError:
            self.close()
            raise

    def close(self) -> None:
        """End the session: its ephemerals go at once. Safe to call again, and harmless in a forked child."""
        if self._forked:
            return
        with self._changed:
            if self.state is State.CLOSED:
                return
            self.state = State.CLOSED
            self._changed.notify_all()
        self._stop.set()
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join()
        self._client.dispose()
        self._connection.dispose()

    def _new_client(self, client_id: tuple[int, bytes] | None) -> Client:
        def granted(read_timeout: float) -> None:
            self.timeout = read_timeout * 3 / 2
            self._reply_deadline = max(1.0, read_timeout)
            self._on_connected(client)

        client = Client(self.config, client_id, self._connection, seen=self._seen, granted=granted)
        self._connection.attach(client)
        client.add_listener(lambda state: self._on_disconnected(client, state))
        return client

    def _seen(self) -> int:
        """The newest transaction that we know of; a server that lags behind it does not accept us.

        kazoo forgets it with its session, and the next server could show us entries that we acked as still there, or
        one that we published as gone. But after a long absence we forget it too: a ZooKeeper that has lost its data
        would refuse us for ever.
        """
        away = 0.0 if self._lost is None else time.monotonic() - self._lost
        if away > FORGET_AFTER * self._reply_deadline:
            self._zxid = 0
        return self._zxid

    # Both on the connection's thread: note it, tell the listeners, never block.

    def _on_connected(self, client: Client) -> None:
        with self._changed:
            if client is not self._client or self.state is State.CLOSED:
                return
            previous, self.client_id = self.client_id, client.client_id
            if previous is None or self.client_id is None or previous[0] != self.client_id[0]:
                self.generation += 1
            self._lost = None
            self._connection.opened()
            self._change(State.CONNECTED)
        self._tell()

    def _on_disconnected(self, client: Client, state: str) -> None:
        with self._changed:
            if state == KazooState.CONNECTED or client is not self._client or self.state is State.CLOSED:
                return
            self._zxid = max(self._zxid, client.last_zxid)
            self._lost = self._lost or time.monotonic()
            # kazoo takes a connection that breaks while SASL is spoken for a refusal: once accepted, we do not.
            refused = client.client_state == KeeperState.AUTH_FAILED and self.generation == 0
            self._change(State.REFUSED if refused else State.SUSPENDED)
        self._connection.closed()
        self._tell()

    def _change(self, state: State) -> None:
        self.state = state
        log.info("session %s (generation %d)", state.value, self.generation)
        self._changed.notify_all()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` at every change of `state` or `generation`, on the connection's thread: it only notes."""
        self._listeners.append(listener)

    # -- deadlines and the dead client ---------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._stop.wait(TICK):
            try:
                if self._connection.overdue(self._reply_deadline):
                    log.warning("no answer for %.1f s: dropping the connection", self._reply_deadline)
                    self._client.drop()
                if self._client.ended and self.state is not State.REFUSED:
                    self._revive()
            except Exception:
                log.exception("looking after the session failed")

    def _revive(self) -> None:
        """Replace a client whose connection thread died, taking over its session if that still lives."""
        with self._changed:
            dead = self._client
            failure = dead.failure or AuthFailedError("the credentials were refused, or the connection broke")
            if self.generation == 0:  # it would only die again
                self._failure = translate(failure)
                self._change(State.REFUSED)
                return
            if self.state is State.CLOSED or time.monotonic() - self._revived < REVIVE_AFTER:
                return
            self._revived = time.monotonic()
            log.error("replacing kazoo's client, whose connection thread died: %r", failure)
            self._client = self._new_client(self.client_id)
            self.state = State.SUSPENDED
        dead.dispose()
        self._connection.closed()
        self._client.start_async()

    # -- requests ------------------------------------------------------------------------------------------------

    def post(self, step: Callable[..., None], *args: Any) -> None:
        """Run a short step, which never waits, on the connection's thread; while there is none, it waits for one."""
        self._connection.post(step, *args)

    def get_async(self, path: str, watch: Watch | None = None) -> Future[tuple[bytes, Stat]]:
        """A znode's data and stat. `watch` is called once, on a change or when the connection is lost."""
        return self._send(Get(self._chroot, path, watch))

    def exists_async(self, path: str, watch: Watch | None = None) -> Future[Stat | None]:
        """A znode's stat, or None."""
        return self._send(Exists(self._chroot, path, watch))

    def children_async(self, path: str, watch: Watch | None = None) -> Future[tuple[list[str], Stat]]:
        """The children's names and the parent's stat, from one moment."""
        return self._send(Children(self._chroot, path, watch))

    def acl_async(self, path: str) -> Future[tuple[dict[str, int], Stat]]:
        """Who may do what with a znode: the rights, as bits, of each identity, such as "world:anyone"; and its stat.

        To those who may not change them ZooKeeper shows digests without their hashes, as "digest:USER:x".
        """
        return self._send(GetAcl(self._chroot, path))

    def multi_async(self, operations: Sequence[Operation]) -> Future[list[Any]]:
        """All or none: a path for each create, a Stat for each set, True for the others; or `TransactionFailed`."""
        future: Future[list[Any]] = Future()
        self._transact(self._transaction(operations), operations, partial(_settle, future))
        return future

    def _send(self, request: Request) -> Future[Any]:
        future: Future[Any] = Future()
        self._call(request, partial(_settle, future))
        return future

    # The same without Futures. `done` is called on the connection's thread, or at once if there is no connection.

    def call_get(self, path: str, done: Done) -> None:
        """Read a znode's data and stat."""
        self._call(Get(self._chroot, path), done)

    def call_children(self, path: str, done: Done, watch: Watch | None = None) -> None:
        """Read the children's names and the parent's stat."""
        self._call(Children(self._chroot, path, watch), done)

    def call_multi(self, operations: Sequence[Operation], done: Done) -> None:
        """Carry out all or none; `done` gets what `multi_async` results in, or raises."""
        try:
            request = self._transaction(operations)
        except StoreError as error:
            done(None, error)
            return
        self._transact(request, operations, done)

    def fits(self, operations: Sequence[Operation]) -> bool:
        """Whether they can be one transaction, with the ACLs that they come with."""
        return len(self._request(operations).raw) <= MAX_TRANSACTION

    def _request(self, operations: Sequence[Operation]) -> Multi:
        return Multi(self._chroot, operations, self._acl, self.rights)

    def _transaction(self, operations: Sequence[Operation]) -> Multi:
        request = self._request(operations)
        if len(request.raw) > MAX_TRANSACTION:
            size = len(request.raw)
            raise StoreError(f"a transaction of {size:,} bytes is over the limit of {MAX_TRANSACTION:,}")
        return request

    def _transact(self, request: Multi, operations: Sequence[Operation], done: Done) -> None:
        def checked(results: Any, error: ZkmsError | None) -> None:
            done(results, error or _failure(operations, results))

        self._call(request, checked)

    def watch_children(self, path: str, rung: Rung, done: Done) -> None:
        """On the connection's thread: hear of every event at and below a znode until the connection ends."""
        self._connection.watch_always(path, rung)
        self._call(AddWatch(self._chroot, path), done)

    def watch_children_no_more(self, path: str) -> None:
        """On the connection's thread: undo `watch_children`; whether the server hears it makes no difference to us."""
        self._connection.watch_no_more(path)
        self._call(RemoveWatches(self._chroot, path), _ignore)

    def _call(self, request: Request, done: Done) -> None:
        self.check_process()
        if self.state is not State.CONNECTED or not self._connection.ask(request, done):
            done(None, self._unsent(request.path))

    def _unsent(self, path: str | None) -> ZkmsError:
        if self.state is State.CLOSED:
            return Closed("the bus is closed")
        if self._failure is not None:
            return self._failure
        if self.state is State.REFUSED:
            return Unauthorised("ZooKeeper did not accept the credentials given as auth=")
        return ConnectionLost("not connected to ZooKeeper", path=path, outcome_unknown=False)

    # -- the same, waiting ---------------------------------------------------------------------------------------

    def get(self, path: str, watch: Watch | None = None, *, deadline: float | None = None) -> tuple[bytes, Stat]:
        """`get_async`, tried again over reconnects until the deadline or the request time-out."""
        return self._read(lambda: self.get_async(path, watch), deadline)

    def exists(self, path: str, watch: Watch | None = None, *, deadline: float | None = None) -> Stat | None:
        """`exists_async`, tried again over reconnects until the deadline or the request time-out."""
        return self._read(lambda: self.exists_async(path, watch), deadline)

    def children(
        self, path: str, watch: Watch | None = None, *, deadline: float | None = None
    ) -> tuple[list[str], Stat]:
        """`children_async`, tried again over reconnects until the deadline or the request time-out."""
        return self._read(lambda: self.children_async(path, watch), deadline)

    def answer(self, reply: Future[T], again: Callable[[], Future[T]], *, deadline: float | None = None) -> T:
        """What came of a read that was sent ahead, with others; if its answer was lost it is sent `again`."""
        sent = [reply]
        return self._read(lambda: sent.pop() if sent else again(), deadline)

    def acl(self, path: str) -> tuple[dict[str, int], Stat]:
        """`acl_async`, tried again over reconnects until the request time-out."""
        return self._read(lambda: self.acl_async(path), None)

    def adopt(self, policy: AclPolicy) -> None:
        """From now on, choose the ACLs of the znodes we make by this policy."""
        self.rights = policy
        self.overhead = len(self._chroot.encode()) + max(0, policy.usual - USUAL_ACL)

    def identities(self) -> frozenset[str]:
        """Who we are in ACLs. The server tells that of certificates and SASL, but of digest no more than the user."""
        mine = {identity(scheme, credential) for scheme, credential in self.config.auth if scheme == "digest"}
        try:
            told = self._read(lambda: self._send(WhoAmI()), None)
        except Unsupported:  # before 3.7
            return frozenset(mine)
        return frozenset(mine | {f"{scheme}:{name}" for scheme, name in told if scheme not in ("digest", "ip")})

    def multi(self, operations: Sequence[Operation], *, deadline: float | None = None) -> list[Any]:
        """`multi_async`, waited for. Sent once: after a `ConnectionLost` with `outcome_unknown` the caller decides."""
        deadline = time.monotonic() + self.config.request_timeout if deadline is None else deadline
        while True:
            self._wait_connected(deadline)
            try:
                return self._result(self.multi_async(operations), deadline)
            except ConnectionLost as error:
                if error.outcome_unknown:
                    raise

    def _read(self, send: Callable[[], Future[T]], deadline: float | None) -> T:
        latest = time.monotonic() + self.config.request_timeout
        deadline = latest if deadline is None else min(deadline, latest)
        while True:
            self._wait_connected(deadline)
            try:
                return self._result(send(), deadline)
            except ConnectionLost:
                if time.monotonic() >= deadline or self._stop.wait(0.02):  # until kazoo has told us of its state
                    raise

    def _result(self, future: Future[T], deadline: float) -> T:
        try:
            return future.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError as error:
            if future.done():  # at the last moment; or the request itself ended with a time-out of ours
                return future.result()
            raise ConnectionLost("ZooKeeper did not answer in time") from error

    def check_process(self) -> None:
        """Raise `UsedAfterFork` in a child process: its locks and threads are those of the parent."""
        if self._forked:
            raise UsedAfterFork

    def wait_connected(self, timeout: float) -> None:
        """Return when requests can be sent, or raise `ConnectionLost`, `Closed` or `Unauthorised`."""
        self._wait_connected(time.monotonic() + timeout)

    def _wait_connected(self, deadline: float) -> None:
        self.check_process()
        with self._changed:
            while (state := self.state) is not State.CONNECTED:
                if state in (State.CLOSED, State.REFUSED):
                    raise self._unsent(None)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ConnectionLost(
                        f"not connected to ZooKeeper at {self.config.hosts} in time", outcome_unknown=False
                    )
                self._changed.wait(left)


def _settle(future: Future[Any], value: Any, error: ZkmsError | None) -> None:
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def _ignore(_value: Any, _error: ZkmsError | None) -> None:
    """For requests whose answer changes nothing."""


def _failure(operations: Sequence[Operation], results: list[Any]) -> TransactionFailed | None:
    """A failed transaction comes back as a list of exceptions: find the one that is the cause."""
    if not isinstance(results[0], Exception):  # all of them are, or none
        return None
    causes = [i for i, each in enumerate(results) if type(each).__name__ not in _CONSEQUENCES]
    index = causes[0] if causes else 0
    cause = translate(results[index], operations[index].path)
    if not isinstance(cause, StoreError):
        cause = StoreError(str(cause))
    return TransactionFailed(index, cause, operations[index])


def failed_with(error: BaseException, kind: type[StoreError] = BadVersion, *, path: str | None = None) -> bool:
    """Whether a transaction was refused because of `kind` (at `path`, if given)."""
    return (
        isinstance(error, TransactionFailed)
        and isinstance(error.cause, kind)
        and (path is None or error.operation.path == path)
    )


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _mark_forked() -> None:
    for session in _sessions:
        session._forked = True


os.register_at_fork(after_in_child=_mark_forked)
