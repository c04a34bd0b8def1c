"""The one thread of a process that carries the traffic of all its connections.

Each connection has a kazoo client, whose thread connects, pings and ends the session; in between it lets the I/O thread
serve the connection (`carry`) and sleeps. A process with a hundred connections then has one thread that competes with
the handlers for Python's lock, and not a hundred, which all wake when a frame is fanned out.

Only the I/O thread touches a connection that it serves, and only its sockets are watched here. `carry` returns when its
time is over, when there is something for kazoo to read, and raises the error when the connection has broken.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from typing import Protocol

from kazoo.exceptions import ConnectionDropped

log = logging.getLogger("zkms.zookeeper")
LINGER = 1.0
"""Seconds that the thread waits for a connection, when it has none, before it ends."""
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Carried(Protocol):
    """A connection to be served: each call does what can be done at once, never waits, and may raise."""

    listed: bool
    """Whether the I/O thread knows that there is something to do."""

    def work(self, connection: socket.socket, *, read: bool) -> bool:
        """Receive if `read`, run steps, send; True if the next that has arrived is for kazoo."""

    def wants(self, connection: socket.socket) -> tuple[bool, bool]:
        """Whether there is more to do at once, and whether the socket has not taken all."""

    def look(self, connection: socket.socket) -> bool:
        """The last look before the time is over; True if what has arrived is for kazoo."""


class _Visit:
    """A connection that is being served, from `carry` to its return."""

    __slots__ = ("back", "carried", "connection", "deadline", "error", "goodbye", "mask", "ready")

    def __init__(self, carried: Carried, connection: socket.socket, goodbye: socket.socket, deadline: float) -> None:
        self.carried = carried
        self.connection = connection
        self.goodbye = goodbye
        self.deadline = deadline
        self.mask = READ
        self.ready: list[socket.socket] = []
        self.error: BaseException | None = None
        self.back = threading.Event()


class IoThread:
    """Serves connections. `carry` is called by the thread of each connection, `ring` by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._arrivals: deque[_Visit] = deque()
        self._rung: deque[Carried] = deque()
        """Connections that have something to do, each of them once."""
        self._visits: dict[Carried, _Visit] = {}
        self._next = float("inf")
        """No visit ends before this."""
        self._asleep = False
        self._looked = 0.0
        self._bell, self._button = socket.socketpair()
        self._bell.setblocking(False)
        self._button.setblocking(False)

    # -- any thread ----------------------------------------------------------------------------------------------

    def carry(
        self, carried: Carried, connection: socket.socket, goodbye: socket.socket, timeout: float
    ) -> list[socket.socket]:
        """Serve a connection for `timeout` seconds; return earlier with the socket that kazoo has to read."""
        visit = _Visit(carried, connection, goodbye, time.monotonic() + timeout)
        with self._lock:
            self._arrivals.append(visit)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="zkms-io", daemon=True)
                self._thread.start()
        self._wake()
        visit.back.wait()
        if visit.error is not None:
            raise visit.error
        return visit.ready

    def ring(self, carried: Carried) -> None:
        """There is something to do for a connection. One that is not served now is looked at when that begins."""
        if not carried.listed:
            carried.listed = True
            self._rung.append(carried)
            self._wake()

    def _wake(self) -> None:
        if self._asleep:
            self._asleep = False
            with contextlib.suppress(OSError):  # full: rung already
                self._button.send(b"\0")

    @property
    def alive(self) -> bool:
        """Whether there is a thread: it ends when there has been nothing to carry for a while."""
        return self._thread is not None

    def looked(self) -> float:
        """Until when all that had arrived has been read."""
        return time.monotonic() if self._asleep else self._looked

    # -- the I/O thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, READ)
            going = True
            while going:
                try:
                    going = self._turn(selector)
                except Exception as error:  # a bug: whoever is served is told, and none waits for ever
                    log.exception("the I/O thread failed: all connections are made anew")
                    for visit in list(self._visits.values()):
                        self._leave(selector, visit, [], ConnectionDropped(f"the I/O thread failed: {error!r}"))

    def _turn(self, selector: selectors.BaseSelector) -> bool:
        """What there is to do, then what arrives next; False if nobody needs the thread any more."""
        while self._arrivals:
            self._admit(selector, self._arrivals.popleft())
        for _ in range(len(self._rung)):  # those that are rung meanwhile come next time
            carried = self._rung.popleft()
            carried.listed = False
            visit = self._visits.get(carried)
            if visit is not None:
                self._work(selector, visit)
        if not self._visits and not self._arrivals and self._ends(selector):
            return False
        self._asleep = True
        busy = bool(self._rung or self._arrivals)
        if busy:
            self._asleep = False
        now = time.monotonic()
        arrived = selector.select(0 if busy else max(0.0, min(self._next - now, 3600.0)))
        self._asleep = False
        self._looked = now
        for key, mask in arrived:
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._bell.recv(4096)
            elif key.data in self._visits:
                visit = self._visits[key.data]
                if key.fileobj is visit.goodbye:
                    self._leave(selector, visit, [visit.goodbye])
                else:
                    self._work(selector, visit, read=bool(mask & READ))
        if time.monotonic() >= self._next:
            self._end_visits(selector)
        return True

    def _ends(self, selector: selectors.BaseSelector) -> bool:
        """Wait a little for somebody to come; whether nobody has."""
        self._asleep = True
        if not self._arrivals:
            selector.select(LINGER)
        self._asleep = False
        with self._lock:
            if self._arrivals:
                return False
            self._thread = None
            return True

    def _admit(self, selector: selectors.BaseSelector, visit: _Visit) -> None:
        self._visits[visit.carried] = visit
        self._next = min(self._next, visit.deadline)
        try:
            selector.register(visit.connection, visit.mask, visit.carried)
            selector.register(visit.goodbye, READ, visit.carried)
        except (OSError, ValueError, KeyError) as error:  # closed in the meantime
            self._leave(selector, visit, [], error)
            return
        self._work(selector, visit)

    def _work(self, selector: selectors.BaseSelector, visit: _Visit, *, read: bool = False) -> None:
        carried = visit.carried
        try:
            if carried.work(visit.connection, read=read):
                self._leave(selector, visit, [visit.connection])
                return
            more, unsent = carried.wants(visit.connection)
            mask = READ | WRITE if unsent else READ
            if mask != visit.mask:
                visit.mask = mask
                selector.modify(visit.connection, mask, carried)
            if more:
                self.ring(carried)
        except BaseException as error:  # noqa: BLE001 - it is raised on the connection's own thread
            self._leave(selector, visit, [], error)

    def _end_visits(self, selector: selectors.BaseSelector) -> None:
        now = time.monotonic()
        for visit in [visit for visit in self._visits.values() if visit.deadline <= now]:
            try:
                for_kazoo = visit.carried.look(visit.connection)
            except BaseException as error:  # noqa: BLE001 - as above
                self._leave(selector, visit, [], error)
            else:
                self._leave(selector, visit, [visit.connection] if for_kazoo else [])
        self._next = min((visit.deadline for visit in self._visits.values()), default=float("inf"))

    def _leave(
        self,
        selector: selectors.BaseSelector,
        visit: _Visit,
        ready: list[socket.socket],
        error: BaseException | None = None,
    ) -> None:
        for each in (visit.connection, visit.goodbye):
            with contextlib.suppress(KeyError, ValueError, OSError):
                selector.unregister(each)
        del self._visits[visit.carried]
        visit.ready, visit.error = ready, error
        visit.back.set()


_io_thread = IoThread()


def io_thread() -> IoThread:
    """The I/O thread of this process."""
    return _io_thread


def ring(carried: Carried) -> None:
    """Tell the I/O thread of this process that there is something to do for a connection."""
    _io_thread.ring(carried)


def _renew() -> None:
    """The parent's thread is not in this process, and its sockets are not ours."""
    global _io_thread
    _io_thread = IoThread()


os.register_at_fork(after_in_child=_renew)
