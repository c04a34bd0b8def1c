"""The traffic of one connection: requests out, replies and events in, and the short steps they lead to.

kazoo makes the connection, shows the credentials, pings and ends the session. In between its thread sleeps, and the I/O
thread (io_thread.py) writes and reads here all that a session asks: what many threads ask at once leaves in one piece,
and what has arrived is taken in one piece. Steps (see `post`) run there too, so that reading a queue needs no other
thread and no locks. "The connection's thread" is whichever of the two serves the connection. Nothing here ever blocks.

Requests carry kazoo's own numbering, so that its goodbye fits into the row: what is not a reply to us is left to kazoo.
"""

from __future__ import annotations

import logging
import select
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import EXCEPTIONS, ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError

from zkms.errors import ConnectionLost, ZkmsError, translate
from zkms.zookeeper.io_thread import io_thread, ring
from zkms.zookeeper.kazoo_client import Client
from zkms.zookeeper.wire import CHILD, DELETED, NO_NODE, Request, Watch, read_event

log = logging.getLogger("zkms.zookeeper")
CHUNK = 256 * 1024
"""Bytes read or written at once."""
ROOM = 640 * 1024
"""Bytes that hold any frame of ours: a connection that has read one keeps as much, and makes no room for each."""
WORTH_WAITING = 32 * 1024
"""Bytes of an answer that are waited for in one go."""
_HEAD = struct.Struct(">iii")
_LENGTH = struct.Struct(">i")
_REPLY = struct.Struct(">iqi")
_PING, _EVENT = -2, -1
_LAST_XID = 2**31 - 1
_LONGEST_REPLY = 256 * 1024 * 1024

Done = Callable[[Any, ZkmsError | None], None]
"""Gets the value of a reply, or the error, on the connection's thread: it never blocks."""
Rung = Callable[[int, str], None]
"""Gets the kind of an event and the name of the child it is about ("" for the watched znode itself)."""


class _Asked:
    __slots__ = ("done", "request", "sent", "xid")

    def __init__(self, request: Request, done: Done, sent: float) -> None:
        self.request = request
        self.done = done
        self.sent = sent
        self.xid = 0


class Connection:
    """The traffic of one kazoo client. `ask` and `post` may be called by any thread; the rest is the connection's."""

    def __init__(self) -> None:
        self._client: Client
        self._chroot = 0
        self._lock = threading.Lock()
        self._open = False
        self._unsent: deque[_Asked] = deque()
        self._unanswered: deque[_Asked] = deque()
        self._steps: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._out = b""
        """Written by nobody yet: the rest of a piece that the socket did not take."""
        self._in = bytearray(CHUNK)
        """What has arrived, in its first `_have` bytes; as large as the largest answer that is being read."""
        self._have = 0
        self._wakes_at = 1
        self._heard_at = 0.0
        """When something arrived last."""
        self.listed = False
        self._once: dict[str, dict[str, list[Watch]]] = {"data": {}, "children": {}}
        self._always: dict[str, Rung] = {}

    def attach(self, client: Client) -> None:
        """Carry this client's traffic."""
        self._client = client
        self._chroot = len(client.chroot)

    # -- any thread ----------------------------------------------------------------------------------------------

    def ask(self, request: Request, done: Done) -> bool:
        """Send a request; False if there is no connection, and `done` will not be called then."""
        asked = _Asked(request, done, time.monotonic())
        with self._lock:
            if not self._open:
                return False
            self._unsent.append(asked)
        self._ring()
        return True

    def post(self, step: Callable[..., None], *args: Any) -> None:
        """Run a short step on the connection's thread, in order; while there is no connection it waits for one."""
        self._steps.append((step, args))
        self._ring()

    def _ring(self) -> None:
        ring(self)

    def overdue(self, deadline: float) -> bool:
        """Whether nothing came for longer than `deadline` although something was asked, and nobody is busy with it."""
        try:
            first = self._unanswered[0] if self._unanswered else self._unsent[0]
        except IndexError:
            return False
        return self._looked() - max(first.sent, self._heard_at) > deadline

    def _looked(self) -> float:
        return io_thread().looked()

    # -- the connection begins and ends ---------------------------------------------------------------------------

    def begin(self) -> None:
        """kazoo is about to connect: nothing has been read or half written yet."""
        self._have, self._out, self._wakes_at = 0, b"", 1

    def opened(self) -> None:
        """The connection is up, and the credentials are accepted."""
        with self._lock:
            self._open = True

    def closed(self, error: ZkmsError | None = None) -> None:
        """It is down: fail what was asked, tell every one-shot watch, forget the others. Harmless if known."""
        with self._lock:
            self._open = False
            unanswered, self._unanswered = self._unanswered, deque()
            unsent, self._unsent = self._unsent, deque()
        self._always.clear()
        watches = [watch for kind in self._once.values() for found in kind.values() for watch in found]
        for kind in self._once.values():
            kind.clear()
        for asked in unanswered:
            lost = error or ConnectionLost("connection lost before the answer", path=asked.request.path)
            self._tell(asked.done, None, lost)
        for asked in unsent:
            path = asked.request.path
            never = error or ConnectionLost("connection lost before it was sent", path=path, outcome_unknown=False)
            self._tell(asked.done, None, never)
        for watch in watches:
            self._tell(watch)

    def dispose(self) -> None:
        """End for good: drop the steps that wait for a connection, too."""
        self.closed()
        self._steps.clear()

    # -- the connection's thread ------------------------------------------------------------------------------------

    def watch_always(self, path: str, rung: Rung) -> None:
        """Tell of each event at or directly below a path that an AddWatch was sent for, until the connection ends."""
        self._always[path] = rung

    def watch_no_more(self, path: str) -> None:
        """Undo `watch_always`."""
        self._always.pop(path, None)

    def wait(self, connection: socket.socket, goodbye: socket.socket, timeout: float) -> list[socket.socket]:
        """In kazoo's select(): be served until it has something to do; return the socket that it has to read."""
        ready = io_thread().carry(self, connection, goodbye, timeout)
        if goodbye in ready:
            self._run_steps()
            self._send(connection, wholly=True)
        return ready

    def work(self, connection: socket.socket, *, read: bool) -> bool:
        """Receive if there is something to `read`, run steps, send; True if the next that has arrived is for kazoo."""
        if self._receive(connection, read=read or _holds(connection)):
            return True
        self._run_steps()
        self._send(connection)
        return False

    def wants(self, connection: socket.socket) -> tuple[bool, bool]:
        """Whether there is more to do at once, and whether the socket has not taken all."""
        return bool(self._steps or (self._unsent and not self._out) or _holds(connection)), bool(self._out)

    def look(self, connection: socket.socket) -> bool:
        """Read what there is before kazoo takes silence for a broken connection.

        The socket hides what is too little to be woken for (see _sleep_until), but it is a sign of life; the answer to
        kazoo's last ping may lie there, too.
        """
        return self.work(connection, read=True)

    def _run_steps(self) -> None:
        for _ in range(len(self._steps)):  # those that they post come next time, behind what was asked
            step, args = self._steps.popleft()
            self._tell(step, *args)

    def _tell(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except BaseException:  # whatever it was, the connection's thread goes on
            log.exception("a step on the connection's thread failed: %s", call)

    def _send(self, connection: socket.socket, *, wholly: bool = False) -> None:
        """Write what was asked, as far as the socket takes it."""
        while True:
            if not self._out:
                self._out = self._gather()
                if not self._out:
                    return
            try:
                sent = connection.send(self._out)
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                if not wholly:
                    return
                _ready(connection, select.POLLOUT, 1.0)
                continue
            self._out = self._out[sent:] if sent < len(self._out) else b""

    def _gather(self) -> bytes:
        """The bytes of the requests to send next; they count as sent."""
        if not self._unsent:
            return b""
        parts: list[bytes] = []
        size = 0
        xid = self._client.xid
        while self._unsent and size < CHUNK:
            try:
                asked = self._unsent.popleft()
            except IndexError:
                break
            asked.xid = xid = xid % _LAST_XID + 1
            raw = asked.request.raw
            parts += (_HEAD.pack(len(raw) + 8, xid, asked.request.code), raw)
            size += len(raw)
            self._unanswered.append(asked)
        self._client.xid = xid
        return b"".join(parts)

    def _receive(self, connection: socket.socket, *, read: bool = False) -> bool:
        """Take what has arrived; True if the next of it is for kazoo."""
        while read and self._have < len(self._in):
            room = len(self._in) - self._have
            try:
                count = connection.recv_into(memoryview(self._in)[self._have :])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not count:
                raise ConnectionDropped("socket connection broken")
            self._have += count
            self._heard_at = time.monotonic()
            self._client.heard()
            read = count == room or isinstance(connection, ssl.SSLSocket)
        if not self._have:
            return False
        place, for_kazoo = self._take(memoryview(self._in)[: self._have])
        missing = self._keep(place)
        if not for_kazoo:
            self._sleep_until(connection, missing if missing >= WORTH_WAITING else 1)
        return for_kazoo

    def _sleep_until(self, connection: socket.socket, arrived: int) -> None:
        """Let the socket wake us only when so much has arrived: a large answer comes in dozens of pieces."""
        if arrived != self._wakes_at and not isinstance(connection, ssl.SSLSocket):
            self._wakes_at = arrived
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, arrived)

    def _keep(self, place: int) -> int:
        """Keep what came after `place`, with room for the whole of the answer that it begins with.

        Return how much of that is missing.
        """
        left = self._have - place
        need, missing = CHUNK, 1
        if left >= 4:
            whole = 4 + _LENGTH.unpack_from(self._in, place)[0]
            need, missing = max(CHUNK, whole), whole - left
        if len(self._in) < need or len(self._in) > ROOM >= need:
            # Never resized: somebody may still look at the old one, if only a traceback.
            kept = bytearray(ROOM if CHUNK < need < ROOM else need)
            kept[:left] = memoryview(self._in)[place : self._have]
            self._in = kept
        elif place:
            self._in[:left] = self._in[place : self._have]
        self._have = left
        return int(missing)

    def _take(self, arrived: memoryview) -> tuple[int, bool]:
        """Deal with every whole frame; how far that was, and whether it ended at one that is for kazoo."""
        place, end = 0, len(arrived)
        while end - place >= 4:
            (length,) = _LENGTH.unpack_from(arrived, place)
            if not 0 <= length <= _LONGEST_REPLY:
                raise ConnectionDropped(f"an answer of {length} bytes is none of ZooKeeper's")
            if end - place - 4 < length:
                break
            if not self._take_frame(arrived[place + 4 : place + 4 + length]):
                return place, True
            place += 4 + length
        return place, False

    def _take_frame(self, frame: memoryview) -> bool:
        """False if it is an answer to kazoo."""
        if len(frame) < _REPLY.size:
            raise ConnectionDropped("an answer without a header")
        xid, zxid, code = _REPLY.unpack_from(frame)
        if zxid > 0:  # since ZooKeeper 3.9 also that of an event: no server that is older shall be asked from now on
            self._client.last_zxid = max(zxid, self._client.last_zxid)
        if xid == _EVENT:
            self._event(frame)
            return True
        if xid == _PING:
            self._client.heard()
            return True
        if not self._unanswered or self._unanswered[0].xid != xid:
            if not self._client.awaits_reply:
                raise ConnectionDropped(f"an answer to nothing that was asked: {xid}")
            return False
        asked = self._unanswered.popleft()
        request = asked.request
        value, error = None, None
        try:
            if not code:
                value = request.read(frame, _REPLY.size)
            elif code != NO_NODE or not request.missing_is_none:
                error = translate(EXCEPTIONS[code](), request.path)
        except Exception as problem:
            log.warning("ZooKeeper's answer to %s cannot be read: %r", type(request).__name__, problem)
            self._tell(asked.done, None, ConnectionLost("ZooKeeper's answer cannot be read", path=request.path))
            raise ConnectionDropped("an answer that cannot be read") from problem
        if request.watch is not None and error is None:
            watches = self._once[request.watches].setdefault(request.path, [])
            if request.watch not in watches:  # as ZooKeeper counts them: who asks again and again is told once
                watches.append(request.watch)
        self._tell(asked.done, value, error)
        return True

    def _event(self, frame: memoryview) -> None:
        try:
            kind, path = read_event(frame, _REPLY.size)
        except (struct.error, ValueError) as error:
            raise ConnectionDropped("an event that cannot be read") from error
        if self._chroot:
            path = path[self._chroot :]
        parent, _, name = path.rpartition("/")
        rung = self._always.get(parent)
        if rung is not None:
            self._tell(rung, kind, name)
        elif (rung := self._always.get(path)) is not None:
            self._tell(rung, kind, "")
        kinds = ("data", "children") if kind == DELETED else ("children",) if kind == CHILD else ("data",)
        for each in kinds:
            for watch in self._once[each].pop(path, ()):
                self._tell(watch)

    # -- for kazoo, on its own thread: see kazoo_client.py ----------------------------------------------------------

    def take_half_written(self) -> bytes:
        """Return the rest of a request that the socket has not taken wholly: nothing may be written before it."""
        unsent, self._out = self._out, b""
        return unsent

    def read_for_kazoo(self, connection: socket.socket, length: int, timeout: float) -> bytes:
        """Return the next bytes for kazoo, first from what arrived with our replies."""
        deadline = time.monotonic() + timeout
        if not 0 <= length <= _LONGEST_REPLY:
            raise ConnectionDropped(f"an answer of {length} bytes is none of ZooKeeper's")
        if length > len(self._in):
            grown = bytearray(length)
            grown[: self._have] = memoryview(self._in)[: self._have]
            self._in = grown
        while self._have < length:
            left = max(0.0, deadline - time.monotonic())
            if not _holds(connection) and not _ready(connection, select.POLLIN, left):
                raise KazooTimeoutError("socket time-out during read")
            try:
                count = connection.recv_into(memoryview(self._in)[self._have : length])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                continue
            except OSError as error:
                raise ConnectionDropped(f"socket connection error: {error}") from error
            if not count:
                raise ConnectionDropped("socket connection broken")
            self._have += count
        taken = bytes(self._in[:length])
        self._have -= length
        self._in[: self._have] = self._in[length : length + self._have]
        return taken


def _holds(sock: socket.socket) -> bool:
    """Whether TLS has read and deciphered what we have not: the socket says nothing of that."""
    return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0


def _ready(sock: socket.socket, event: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(timeout * 1000))
