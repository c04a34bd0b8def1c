"""A process with a dogpile region: HOSTS ROOT [unguarded]."""

from __future__ import annotations

import sys
import time
from typing import Any

from dogpile.cache import make_region
from dogpile.cache.api import NO_VALUE
from serving import serve

from zkms.integrations.dogpile import ZkmsInvalidator

hosts, root, *how = sys.argv[1:]
region = make_region()
region.configure(
    "zkms",
    arguments={
        "hosts": hosts,
        "root": root,
        "wait": 20.0,
        "cleaner": False,
        "session_timeout": 30.0,
        "max_staleness": 15.0,
    },
    region_invalidator=ZkmsInvalidator(region),
)


class Node:
    """A region, as any program uses it."""

    def get(self, key: str) -> Any:
        """What is there; None if nothing is."""
        value = region.get(key)
        return None if value is NO_VALUE else value

    def create(self, key: str, value: Any, expiration_time: float | None = None) -> Any:
        """The value, or else this one."""
        return region.get_or_create(key, lambda: value, expiration_time)

    def create_multi(self, keys: list[str], value: Any) -> Any:
        """The values, or else this one."""
        return region.get_or_create_multi(keys, lambda *missing: [value for _ in missing])

    def begin_creating(self, key: str, value: Any) -> None:
        """Take dogpile's lock and load, as get_or_create() does."""
        self.mutex = region._mutex(key)
        self.mutex.acquire()
        self.created = key, value

    def end_creating(self) -> None:
        """Store it, and give the lock back."""
        region.set(*self.created)
        self.mutex.release()

    def ready(self) -> None:
        """Return when values can be kept."""
        while not region.actual_backend._backend.cache.trusted:
            time.sleep(0.01)

    def __getattr__(self, name: str) -> Any:
        return getattr(region, name)


if how == ["unguarded"]:
    from zkms.cache.tickets import Tickets

    Tickets.valid = lambda *_args, **_kwargs: True  # type: ignore[method-assign]
serve(Node())
