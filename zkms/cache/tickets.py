"""Tickets: whether what was loaded may still be stored.

Every invalidation that a node applies has a number, ascending. Whoever begins to load takes a ticket, the number of the
last one; the value may be stored if its key (and tags) were not invalidated by a later one. So a value that was read
before a change can never be stored after the change was announced, however long the load took.

The numbers are kept for the keys invalidated last. For one that was forgotten, the highest number forgotten stands in:
a very old ticket may then be refused without need, and none is accepted that should not be.

A lease is the ticket of a miss, remembered so that the set() which follows it can be checked. Frameworks load between
a get() that missed and a set(). Leases are kept by thread and by asyncio task, because another's miss says nothing
about when *this* one began to load. A context that misses more keys than are kept remembers the oldest ticket that it
forgot: a set() of a key without a lease is then checked against that one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextvars import ContextVar
from typing import NamedTuple

from zkms.cache.keys import Key

REMEMBERED = 20_000
KEPT = 256
"""Leases of one context."""


class Tickets:
    """The numbers of the latest invalidations. Not thread-safe: the store's lock is around it."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.now = 0
        """Number of the last invalidation: a load that begins now takes this."""
        self._remembered = remembered
        self._floor = 0
        """No key that is not in `_last` was invalidated later than this."""
        self._last: OrderedDict[tuple[bool, Key], int] = OrderedDict()

    def void(self, keys: Iterable[Key], tags: Iterable[str] = ()) -> None:
        """These are invalidated now."""
        self.now += 1
        last = self._last
        for name in [*((False, key) for key in keys), *((True, tag) for tag in tags)]:
            last[name] = self.now
            last.move_to_end(name)
        while len(last) > self._remembered:
            self._floor = last.popitem(last=False)[1]

    def void_all(self) -> None:
        """Everything is invalidated now."""
        self.now += 1
        self._floor = self.now
        self._last.clear()

    def valid(self, ticket: int, key: Key, tags: Iterable[str] = ()) -> bool:
        """Whether nothing has invalidated the key or one of the tags since the ticket was taken."""
        if ticket < self._floor or self._last.get((False, key), 0) > ticket:
            return False
        return all(self._last.get((True, tag), 0) <= ticket for tag in tags)


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
