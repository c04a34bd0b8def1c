"""One cache node: `python -m zkms.demo.node HOSTS NAME DATABASE SESSION_TIMEOUT`.

Answers questions, JSON lines on standard input, and ends when that does: so it never outlives the demo.
"""

from __future__ import annotations

import sys
import threading

import msgspec

import zkms
from zkms.demo.database import Database

TOPIC = "users"


class ReadUsers(msgspec.Struct):
    """Which users to read; an answer also tells how the node is."""

    read: list[int]


class CacheReport(msgspec.Struct):
    """The users' names as this node sees them, how many came from its cache, and what it has heard so far."""

    names: list[str]
    hits: int = 0
    heard: int = 0
    gaps: int = 0
    subscription: str = ""


class DemoNode:
    """A cache of users in a dict, kept true by what the bus says."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache: dict[int, str] = {}
        self._lock = threading.Lock()
        self._heard = 0
        self._gaps = 0

    def drop(self, message: zkms.Message) -> None:
        """A user has changed: forget what we know."""
        with self._lock:
            self._heard += 1
            self._cache.pop(message.data, None)

    def drop_all(self, _gap: zkms.Gap) -> None:
        """We may have missed something: forget everything."""
        with self._lock:
            self._gaps += 1
            self._cache.clear()

    def answer(self, question: ReadUsers, subscription: str) -> CacheReport:
        """Read users, from the cache where they are in it."""
        # Locked while reading the database: an invalidation that comes meanwhile then drops what is stored here.
        with self._lock:
            hits = sum(user in self._cache for user in question.read)
            for user in question.read:
                if user not in self._cache:
                    self._cache[user] = self._database.name(user)
            names = [self._cache[user] for user in question.read]
            return CacheReport(names, hits, self._heard, self._gaps, subscription)


def main(hosts: str, name: str, database: str, session_timeout: str, trail: str | None = None) -> None:
    """Serve until standard input ends."""
    node = DemoNode(Database(database))
    with zkms.connect(hosts, client_id=name, cleaner=False, session_timeout=float(session_timeout), trail=trail) as bus:
        subscription = bus.subscribe(TOPIC, node.drop, on_gap=node.drop_all)
        print(msgspec.json.encode(node.answer(ReadUsers([]), subscription.id)).decode(), flush=True)
        for line in sys.stdin:
            answer = node.answer(msgspec.json.decode(line, type=ReadUsers), subscription.id)
            print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
