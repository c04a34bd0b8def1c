"""Leases: a miss is remembered, so that the set() which follows it can be checked.

Frameworks load between a get() that missed and a set(). A lease is the ticket of that miss (see tickets.py), kept by
thread and by asyncio task, because another's miss says nothing about when *this* one began to load. A context that
misses more keys than are kept remembers the oldest ticket that it forgot: a set() of a key without a lease is then
checked against that one.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import NamedTuple

from zkms.cache.keys import Key

KEPT = 256


class _Noted(NamedTuple):
    """What one context has missed. Never changed: tasks inherit it, and must not see what others add."""

    tickets: dict[Key, int]
    forgotten: int | None = None


_NOTHING = _Noted({})


class Leases:
    """The leases of one cache. Thread-safe, as every context has its own."""

    def __init__(self, name: str) -> None:
        self._noted: ContextVar[_Noted] = ContextVar(f"zkms-cache-{name}", default=_NOTHING)

    def note(self, key: Key, ticket: int) -> None:
        """This context has missed the key, and may load it now; of several misses before a set(), the first counts.

        Who looks once more before storing what it has loaded (cachetools' decorator does, with a lock) has not loaded
        it again.
        """
        noted, forgotten = self._noted.get()
        tickets = dict(noted)
        ticket = min(ticket, tickets.pop(key, ticket))
        if len(tickets) >= KEPT:
            oldest = tickets.pop(next(iter(tickets)))
            forgotten = oldest if forgotten is None else min(forgotten, oldest)
        tickets[key] = ticket
        self._noted.set(_Noted(tickets, forgotten))

    def take(self, key: Key) -> int | None:
        """The ticket to check a set() with, which uses it up; None if this context has missed nothing that matters."""
        tickets, forgotten = self._noted.get()
        if key not in tickets:
            return forgotten
        rest = dict(tickets)
        ticket = rest.pop(key)
        self._noted.set(_Noted(rest, forgotten))
        return ticket

    def noted(self, key: Key) -> bool:
        """Whether this context has missed the key, and has not set it since."""
        return key in self._noted.get().tickets

    def forget(self) -> None:
        """What this context has missed so far says nothing about what it sets from now on."""
        self._noted.set(_NOTHING)
