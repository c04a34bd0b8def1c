"""Opening the bus for asyncio: zkms.aio.connect()."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Unpack

from zkms.aio.bus import Bus
from zkms.bus import Bus as ThreadedBus
from zkms.config import DEFAULT_HOSTS, DEFAULT_ROOT, Config, ConnectOptions, configure
from zkms.connect import build, open_bus
from zkms.errors import Closed, InvalidArgument

if TYPE_CHECKING:
    from types import TracebackType


def connect(hosts: str = DEFAULT_HOSTS, root: str = DEFAULT_ROOT, **options: Unpack[ConnectOptions]) -> Connecting:
    """A bus to be opened by `async with`, or by `await`: then close() it.

    The options are those of zkms.connect(), see there: `producer`, `cleaner`, `client_id`, `codec`, `tls`, `auth`,
    `access`, `acl`, `trail`, `connect_timeout`, `session_timeout`, `request_timeout`.

    When the opening is cancelled, neither a connection nor a thread is left behind.
    """
    return Connecting(configure(hosts, root, **options))


class Connecting:
    """What connect() returns: nothing is opened before it is awaited, or entered."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._bus: Bus | None = None

    def __await__(self) -> Generator[Any, None, Bus]:
        """Open the bus."""
        return _open(self._config).__await__()

    async def __aenter__(self) -> Bus:
        if self._bus is not None:
            raise InvalidArgument("a bus is opened once: call zkms.aio.connect() again for another")
        self._bus = await _open(self._config)
        return self._bus

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bus is not None:
            await self._bus.close()


async def _open(config: Config) -> Bus:
    """Open on a thread; when cancelled, interrupt that, and return when nothing is left of it."""
    opener = _Opener(config)
    pool = ThreadPoolExecutor(2, "zkms-aio-open")
    try:
        job = pool.submit(opener.open)
        try:
            threaded = await asyncio.shield(asyncio.wrap_future(job))
        except asyncio.CancelledError:
            undoing = pool.submit(opener.undo, job)
            await asyncio.shield(asyncio.wrap_future(undoing))
            raise
        return Bus(threaded)
    finally:
        pool.shutdown(wait=False)


class _Opener:
    """Opens a threaded bus, unless it is told to undo that first."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._bus: ThreadedBus | None = None
        self._undone = False
        self._lock = threading.Lock()

    def open(self) -> ThreadedBus:
        """Connect and show up as a client."""
        with self._lock:
            if self._undone:
                raise Closed("the opening was cancelled")
            self._bus = build(self._config)
        open_bus(self._bus)
        return self._bus

    def undo(self, job: Future[ThreadedBus]) -> None:
        """Make open() end soon, wait for that, and close what it has opened."""
        with self._lock:
            self._undone = True
        if self._bus is not None:
            # The opening waits for nothing but the session, and has closed the rest if it raised.
            self._bus.parts.session.close()
            if job.exception() is None:
                self._bus.close(timeout=0.0)
