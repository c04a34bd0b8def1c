"""A process with a function decorated by cachetools: HOSTS ROOT."""

from __future__ import annotations

import sys
import time
from typing import Any

import cachetools
from serving import serve

import zkms
from zkms.cache import coherent

hosts, root = sys.argv[1:]
bus = zkms.connect(hosts, root, cleaner=False, session_timeout=30.0)
users = coherent(cachetools.TTLCache(1000, 3600), bus, "users", max_staleness=15.0)
rows: dict[str, Any] = {}


@cachetools.cached(users)
def load(name: str) -> Any:
    """What is cached."""
    return rows[name]


class Node:
    """What a program does with them."""

    def store(self, name: str, value: Any) -> None:
        """In this process's rows only: where each process has its own, what is cached can be told apart."""
        rows[name] = value

    def load(self, name: str) -> Any:
        """The decorated function."""
        return load(name)

    def drop(self, name: str) -> bool:
        """Everywhere; whether everybody has."""
        return bool(users.invalidate(cachetools.keys.hashkey(name), wait=20.0))

    def delete(self, name: str) -> None:
        """As of any mapping."""
        del users[cachetools.keys.hashkey(name)]

    def ready(self) -> None:
        """Return when values can be kept."""
        while not users.cache.trusted:
            time.sleep(0.01)


serve(Node())
bus.close()
