"""A backend for Flask-Caching: memory in every process, and invalidation across all of them.

app.config["CACHE_TYPE"] = "zkms.integrations.flask.ZkmsCache"
app.config["CACHE_OPTIONS"] = {"hosts": "zk1:2181,zk2:2181", "root": "/zkms", "wait": 2.0}

Flask-Caching gives a memoized function a random version, which is part of its keys, and resets the function by a new
version. Versions made up by each process would keep their keys apart, so that none could drop another's values. Here
the version is always the same, and a reset clears the cache in every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from flask_caching.backends.base import BaseCache

from zkms.cache.store import MISSING
from zkms.integrations.backend import Backend
from zkms.integrations.process import settings

VERSION_KEY = "_memver"
"""How the keys end under which Flask-Caching keeps versions."""
VERSION = "zkms"
Timeout = float | timedelta | None


class ZkmsCache(BaseCache):
    """Flask-Caching's API on a zkms.Cache.

    CACHE_OPTIONS: `hosts`, `name`, `maxsize`, `max_staleness`, `wait`, and those of zkms.connect().
    """

    def __init__(self, default_timeout: int = 300, ignore_delete_many_errors: bool = False, **options: Any) -> None:
        super().__init__(default_timeout, ignore_delete_many_errors)
        self._backend = Backend(settings(options, hosts=None, name="flask"))

    @classmethod
    def factory(cls, app: Any, config: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> ZkmsCache:
        """As Flask-Caching makes it: CACHE_THRESHOLD is the number of values kept."""
        cache = cls(*args, **{"maxsize": config["CACHE_THRESHOLD"], **kwargs})
        # What a request has missed says nothing about what the next one sets.
        app.teardown_appcontext(lambda _error: cache._backend.forget())
        return cache

    def get(self, key: str) -> Any:
        """The value, or None."""
        if key.endswith(VERSION_KEY):
            return VERSION
        value = self._backend.get(key)
        return None if value is MISSING else value

    def set(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        """After a miss: keep what was loaded, unless outdated. Otherwise: keep it, and drop the old one everywhere."""
        return bool(self.set_many({key: value}, timeout))

    def set_many(self, mapping: Mapping[str, Any], timeout: Timeout = None) -> list[Any]:
        """set() for several; the keys that were kept."""
        values = {key: value for key, value in mapping.items() if not key.endswith(VERSION_KEY)}
        versions = [value for key, value in mapping.items() if key.endswith(VERSION_KEY)]
        if any(version != VERSION for version in versions):
            self._backend.clear()
        refused = self._backend.set_many(values, self._seconds(timeout)) if values else []
        return [key for key in mapping if key not in refused]

    def add(self, key: str, value: Any, timeout: Timeout = None) -> bool:
        """Keep the value if this process has none."""
        return self._backend.add(key, value, self._seconds(timeout))

    def has(self, key: str) -> bool:
        """Whether this process has it."""
        return self._backend.has(key)

    def delete(self, key: str) -> bool:
        """Drop the key in every process; whether this one had it."""
        if key.endswith(VERSION_KEY):
            return self.clear()
        return any(self._backend.delete([key]))

    def delete_many(self, *keys: str) -> list[Any]:
        """Drop several, in one message; all of them are gone then."""
        if any(key.endswith(VERSION_KEY) for key in keys):
            self._backend.clear()
        else:
            self._backend.delete(keys)
        return list(keys)

    def clear(self) -> bool:
        """Drop everything in every process."""
        self._backend.clear()
        return True

    def inc(self, key: str, delta: int = 1) -> int | None:
        """Add to the number in this process, or begin with this one; all others drop theirs."""
        value = self._backend.change(key, lambda old: old + delta)
        if value is not MISSING:
            return int(value)
        return None if self._backend.write({key: delta}, self._seconds(None)) else delta

    def dec(self, key: str, delta: int = 1) -> int | None:
        """inc() the other way."""
        return self.inc(key, -delta)

    def _seconds(self, timeout: Timeout) -> float | None:
        """As Flask-Caching has it: None is the default, 0 is for ever."""
        given = self.default_timeout if timeout is None else timeout
        seconds = given.total_seconds() if isinstance(given, timedelta) else float(given)
        return None if seconds == 0 else seconds
