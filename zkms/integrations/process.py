"""One bus and one cache of a name in a process, whoever asks: made at first use, and anew in a forked child.

So a server may load the application before it forks its workers (gunicorn --preload), and frameworks may make a
backend for each thread. At the process's exit they are closed, so that nobody waits for it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from zkms.cache.tickets import Leases
from zkms.checks import check_seconds
from zkms.config import DEFAULT_HOSTS
from zkms.connect import connect
from zkms.errors import ConnectionLost, InvalidArgument, ZkmsError
from zkms.integrations.near import NearCache

if TYPE_CHECKING:
    from zkms.bus import Bus

log = logging.getLogger("zkms.integrations")
PAUSE = 5.0
"""Seconds without another try, after ZooKeeper could not be reached."""


class BackendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend is made with."""

    hosts: str
    name: str
    maxsize: int = 10_000
    max_staleness: float = 5.0
    wait: float | None = None
    """Seconds that a write or a delete waits for all nodes to drop the old value."""
    connect: Mapping[str, Any] = {}
    """More arguments of zkms.connect()."""


def settings(options: Mapping[str, Any], *, hosts: str | None, name: str, **more: Any) -> BackendSettings:
    """Options as a framework's configuration has them: those of `BackendSettings`, and those of zkms.connect()."""
    ours = {what: options[what] for what in ("name", "maxsize", "max_staleness", "wait") if what in options}
    rest = {what: value for what, value in options.items() if what not in ours and what != "hosts"}
    made = {"name": name, "hosts": hosts or options.get("hosts") or DEFAULT_HOSTS, **more, **ours}
    if made.get("wait") is not None:
        made["wait"] = check_seconds("wait", made["wait"])
    return BackendSettings(connect={"connect_timeout": 5.0, **rest}, **made)


class CachePlace:
    """Where one cache is in this process, once it is needed. Thread-safe."""

    def __init__(self, given: BackendSettings) -> None:
        self.settings = given
        self.leases = Leases(given.name)
        """What each thread or task has missed, also from caches that were here before."""
        self._after = 0
        """The last ticket of those caches."""
        self._cache: NearCache | None = None
        self.begin()

    def begin(self) -> None:
        """Nothing is here yet: at the start, and in a forked child, where locks may be held by threads that are not."""
        self.changing = threading.Lock()
        """Around what reads a value and then changes it."""
        self._making = threading.Lock()
        self._bus: Bus | None = None
        self._part()
        self._again_at: float | None = None
        self._why: ZkmsError | None = None

    def cache(self) -> NearCache:
        """The cache, connected; `ConnectionLost` if ZooKeeper cannot be reached."""
        known = self._cache
        if known is not None and not known.closed:
            return known
        # Who has to wait for ZooKeeper does so once; until it is back, only one caller at a time tries.
        if not self._making.acquire(blocking=self._again_at is None):
            raise self._away()
        try:
            if self._cache is None or self._cache.closed:
                if self._again_at is not None and time.monotonic() < self._again_at:
                    raise self._away()
                self._cache = self._make()
            return self._cache
        finally:
            self._making.release()

    def _part(self) -> None:
        if self._cache is not None:
            self._after = self._cache.ticket
        self._cache = None

    def _make(self) -> NearCache:
        given = self.settings
        self._part()
        self._shut(0.0)
        try:
            self._bus = connect(given.hosts, **given.connect)
            cache = NearCache(
                self._bus,
                given.name,
                maxsize=given.maxsize,
                max_staleness=given.max_staleness,
                leases=self.leases,
                after=self._after,
            )
        except ConnectionLost as error:
            self._shut(0.0)
            self._why, self._again_at = error, time.monotonic() + PAUSE
            log.warning("cache %r: ZooKeeper cannot be reached, so nothing is cached: %s", given.name, error)
            raise
        except BaseException:
            self._shut(0.0)
            raise
        self._again_at = None
        return cache

    def _away(self) -> ConnectionLost:
        return ConnectionLost(f"cache {self.settings.name!r}: ZooKeeper could not be reached: {self._why}")

    def close(self, timeout: float) -> None:
        """Leave; the next use begins anew."""
        with self._making:
            self._part()
            self._shut(timeout)

    def _shut(self, timeout: float) -> None:
        bus, self._bus = self._bus, None
        if bus is not None:
            bus.close(timeout)


_places: dict[tuple[str, str, str], CachePlace] = {}
_entering = threading.Lock()


def place(given: BackendSettings) -> CachePlace:
    """The one place in this process for these hosts, root and name."""
    key = (given.hosts, str(given.connect.get("root")), given.name)
    with _entering:
        known = _places.get(key)
        if known is None:
            known = _places[key] = CachePlace(given)
    if known.settings != given:
        raise InvalidArgument(
            f"this process has a cache {given.name!r} on {given.hosts} already, with other options: "
            "give each a name of its own"
        )
    return known


def close(timeout: float = 5.0) -> None:
    """Close what the integrations have opened in this process; what is used again is opened again."""
    for each in list(_places.values()):
        each.close(timeout)


def _begin_in_child() -> None:
    global _entering  # a thread of the parent may hold it
    _entering = threading.Lock()
    for each in _places.values():
        each.begin()


os.register_at_fork(after_in_child=_begin_in_child)
atexit.register(close, 2.0)
