"""A backend for dogpile.cache: memory in every process, and invalidation across all of them.

region = make_region()
region.configure(
    "zkms",
    expiration_time=3600,
    arguments={"hosts": "zk1:2181", "name": "users"},
    region_invalidator=ZkmsInvalidator(region),      # for region.invalidate()
)

region.set() and region.delete(), and a decorated function's set() and invalidate(), drop the old value in every
process. What get_or_create() and decorated functions create, also because the old one has expired, is kept here, and
others are not told.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dogpile.cache.api import NO_VALUE, CacheBackend, CacheMutex
from dogpile.cache.region import CacheRegion, RegionInvalidationStrategy

from zkms.cache.store import MISSING
from zkms.errors import InvalidArgument
from zkms.integrations.backend import Backend
from zkms.integrations.process import settings


class ZkmsBackend(CacheBackend):
    """Arguments: `hosts`, `name`, `maxsize`, `max_staleness`, `wait`, and those of zkms.connect()."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._backend = Backend(settings(arguments, hosts=None, name="dogpile"))
        self._tickets: dict[str, tuple[int, int]] = {}
        """By key: what is created in this process now; the thread that does, and the ticket of when it began."""

    def get(self, key: str) -> Any:
        """The value, or NO_VALUE."""
        value = self._backend.get(key, note=False)
        return NO_VALUE if value is MISSING else value

    def get_multi(self, keys: Iterable[str]) -> Sequence[Any]:
        """get() for several."""
        return [self.get(key) for key in keys]

    def set(self, key: str, value: Any) -> None:
        """Keep what this thread has created, if it is not outdated; anything else is a write."""
        self.set_multi({key: value})

    def set_multi(self, mapping: Mapping[str, Any]) -> None:
        """set() for several."""
        writes = {}
        for key, value in mapping.items():
            thread, ticket = self._tickets.get(key, (None, 0))
            if thread == threading.get_ident():
                self._backend.fill(key, value, ticket)
            else:
                writes[key] = value
        self._backend.write(writes, None)

    def delete(self, key: str) -> None:
        """Drop it in every process."""
        self._backend.delete([key])

    def delete_multi(self, keys: Iterable[str]) -> None:
        """Drop several in every process, in one message."""
        self._backend.delete(keys)

    def clear(self) -> None:
        """Drop everything in every process."""
        self._backend.clear()

    def get_mutex(self, key: str) -> CacheMutex:
        """The lock that dogpile holds while it creates a value."""
        return _Mutex(self, key)

    def begin(self, key: str) -> None:
        """This thread creates the value from now on."""
        self._tickets[key] = threading.get_ident(), self._backend.ticket()

    def end(self, key: str) -> None:
        """It has done so, or failed."""
        self._tickets.pop(key, None)


class _Mutex(CacheMutex):
    """A lock for one key in this process; dogpile takes it to create a value, and for nothing else."""

    def __init__(self, backend: ZkmsBackend, key: str) -> None:
        self._backend = backend
        self._key = key
        self._lock = threading.Lock()

    def acquire(self, wait: bool = True) -> bool:
        """Take it, and a ticket."""
        if not self._lock.acquire(wait):
            return False
        try:
            self._backend.begin(self._key)
        except BaseException:
            self._lock.release()
            raise
        return True

    def release(self) -> None:
        """Give it back; another thread may do that."""
        self._backend.end(self._key)
        self._lock.release()

    def locked(self) -> bool:
        """Whether anyone has it."""
        return self._lock.locked()


class ZkmsInvalidator(RegionInvalidationStrategy):
    """region.invalidate(), hard or soft, drops everything in every process; no clocks are compared."""

    def __init__(self, region: CacheRegion) -> None:
        self._region = region

    def invalidate(self, hard: bool = True) -> None:  # noqa: ARG002 - a soft one has nothing left to serve either
        """Drop everything in every process, and what is being created."""
        backend = self._region.actual_backend
        if not isinstance(backend, ZkmsBackend):
            raise InvalidArgument(f"ZkmsInvalidator is for regions configured with 'zkms', not with {backend!r:.60}")
        backend.clear()

    def is_invalidated(self, timestamp: float) -> bool:  # noqa: ARG002
        """What is here was never invalidated."""
        return False

    is_hard_invalidated = is_soft_invalidated = is_invalidated

    def was_hard_invalidated(self) -> bool:
        """Nothing is left of it."""
        return False

    was_soft_invalidated = was_hard_invalidated
