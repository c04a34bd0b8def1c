"""A cache backend for Django: memory in every process, and invalidation across all of them.

CACHES = {
    "default": {
        "BACKEND": "zkms.integrations.django.ZkmsCache",
        "LOCATION": "zk1:2181,zk2:2181",
        "OPTIONS": {"root": "/zkms", "max_staleness": 5.0, "wait": 2.0},
    }
}

See docs/integrations.md for what that means for set(), add() and incr().
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache
from django.db.models import QuerySet

from zkms.cache.store import MISSING
from zkms.integrations.backend import Backend
from zkms.integrations.process import settings

MAX_ENTRIES = 10_000


class ZkmsCache(BaseCache):
    """Django's cache API on a zkms.Cache. OPTIONS: `name`, `max_staleness`, `wait`, MAX_ENTRIES, those of connect()."""

    def __init__(self, location: str, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        options = dict(params.get("OPTIONS", {}))
        options.pop("CULL_FREQUENCY", None)  # the least recently used goes first, one at a time
        maxsize = options.pop("MAX_ENTRIES", MAX_ENTRIES)
        self._backend = Backend(settings(options, hosts=location, name="django", maxsize=maxsize), duplicate)

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        """The value, or the default."""
        value = self._backend.get(self.make_and_validate_key(key, version))
        return default if value is MISSING else value

    def set(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        """After a miss: keep what was loaded, unless outdated. Otherwise: keep it, and drop the old one everywhere."""
        self._backend.set(self.make_and_validate_key(key, version), value, self._seconds(timeout))

    def add(self, key: str, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Keep the value if this process has none."""
        return self._backend.add(self.make_and_validate_key(key, version), value, self._seconds(timeout))

    def touch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Give the value in this process a new timeout."""
        return self._backend.touch(self.make_and_validate_key(key, version), self._seconds(timeout))

    def delete(self, key: str, version: int | None = None) -> bool:
        """Drop the key in every process; whether this one had it."""
        return any(self._backend.delete([self.make_and_validate_key(key, version)]))

    def has_key(self, key: str, version: int | None = None) -> bool:
        """Whether this process has it."""
        return self._backend.has(self.make_and_validate_key(key, version))

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> Any:
        """Add to the number in this process, and drop it in all others; `ValueError` if there is none."""
        made = self.make_and_validate_key(key, version)
        value = self._backend.change(made, lambda old: old + delta)
        if value is MISSING:
            raise ValueError(f"Key '{key}' not found")
        return value

    def get_or_set(self, key: str, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> Any:
        """The value; else the default, which is kept if it is not outdated by then."""
        value = self.get(key, MISSING, version=version)
        if value is MISSING:
            value = default() if callable(default) else default
            self.add(key, value, timeout=timeout, version=version)
        return value

    def set_many(
        self, data: Mapping[str, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[str]:
        """set() for several; the keys that were not kept."""
        made = {self.make_and_validate_key(key, version): key for key in data}
        values = {name: data[key] for name, key in made.items()}
        seconds = self._seconds(timeout)
        refused = self._backend.set_many(values, seconds)
        return [] if seconds is not None and seconds <= 0 else [made[name] for name in refused]

    def delete_many(self, keys: Iterable[str], version: int | None = None) -> None:
        """Drop several, in one message."""
        self._backend.delete([self.make_and_validate_key(key, version) for key in keys])

    def clear(self) -> None:
        """Drop everything in every process, whatever its prefix and version."""
        self._backend.clear()

    def close(self, **_kwargs: Any) -> None:
        """Django calls this at the end of a request: what it has missed is forgotten. The connection stays."""
        self._backend.forget()

    async def aget_or_set(
        self, key: str, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """As get_or_set()."""
        value = await self.aget(key, MISSING, version=version)
        if value is MISSING:
            value = default() if callable(default) else default
            await self.aadd(key, value, timeout=timeout, version=version)
        return value

    async def aincr(self, key: str, delta: int = 1, version: int | None = None) -> Any:
        """As incr()."""
        from asgiref.sync import sync_to_async

        change: Callable[..., Any] = sync_to_async(self.incr, thread_sensitive=True)
        return await change(key, delta, version)

    def _seconds(self, timeout: Any) -> float | None:
        """From now on; None: for ever."""
        until = self.get_backend_timeout(timeout)
        return None if until is None else until - time.time()


def duplicate(value: Any) -> Any:
    """A deep copy; of a QuerySet with its rows, which copying it leaves out and Django's other caches keep."""
    if not isinstance(value, QuerySet):
        return copy.deepcopy(value)
    state = {name: part for name, part in value.__getstate__().items() if name in vars(value)}
    fresh = object.__new__(type(value))
    vars(fresh).update(copy.deepcopy(state))
    return fresh
