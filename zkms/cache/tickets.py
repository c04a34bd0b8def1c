"""Tickets decide whether a loaded value may still be stored.

A node numbers the invalidations that it applies. A load takes a ticket when it begins: the number of the last
invalidation. Its value may be stored if its key and tags were not invalidated by a later one. So a value that was read
before a change is never stored after the change was announced, however long the load took.

The numbers of the latest invalidated keys are kept. For other keys, the highest number that was forgotten counts: so a
very old ticket may be refused without need, but none is accepted wrongly.

A lease is the ticket of a miss, kept to check the set() that follows: frameworks load between a get() that missed and a
set(). Leases belong to a thread or asyncio task, because another's miss does not say when *this* one began to load. A
context that misses more keys than are kept remembers the oldest ticket that it forgot, and checks a set() without a
lease against that one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextvars import ContextVar
from typing import NamedTuple

from zkms.cache.keys import Key

REMEMBERED = 20_000
KEPT = 256
"""The most leases of one context."""


class Tickets:
    """The numbers of the latest invalidations. Not thread-safe: used under the store's lock."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self.now = 0
        """Number of the last invalidation, the ticket of a load that begins now."""
        self._remembered = remembered
        self._floor = 0
        """Keys that are not in `_last` were invalidated at this number at the latest."""
        self._last: OrderedDict[tuple[bool, Key], int] = OrderedDict()

    def void(self, keys: Iterable[Key], tags: Iterable[str] = ()) -> None:
        """Invalidate these."""
        self.now += 1
        last = self._last
        for name in [*((False, key) for key in keys), *((True, tag) for tag in tags)]:
            last[name] = self.now
            last.move_to_end(name)
        while len(last) > self._remembered:
            self._floor = last.popitem(last=False)[1]

    def void_all(self) -> None:
        """Invalidate everything."""
        self.now += 1
        self._floor = self.now
        self._last.clear()

    def valid(self, ticket: int, key: Key, tags: Iterable[str] = ()) -> bool:
        """Whether neither the key nor a tag was invalidated since the ticket was taken."""
        if ticket < self._floor or self._last.get((False, key), 0) > ticket:
            return False
        return all(self._last.get((True, tag), 0) <= ticket for tag in tags)


class _Noted(NamedTuple):
    """The misses of one context. Immutable: tasks inherit it, and must not see what others add."""

    tickets: dict[Key, int]
    forgotten: int | None = None


_NOTHING = _Noted({})


class Leases:
    """The leases of one cache. Thread-safe, because every context has its own."""

    def __init__(self, name: str) -> None:
        self._noted: ContextVar[_Noted] = ContextVar(f"zkms-cache-{name}", default=_NOTHING)

    def note(self, key: Key, ticket: int) -> None:
        """Take a lease for a key that this context has missed; of several misses before a set(), the first counts.

        A second read before the set() (cachetools' decorator does this, with a lock) is not a second load.
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
        """Return the ticket for a set(), and end the lease; None if this context has none."""
        tickets, forgotten = self._noted.get()
        if key not in tickets:
            return forgotten
        rest = dict(tickets)
        ticket = rest.pop(key)
        self._noted.set(_Noted(rest, forgotten))
        return ticket

    def noted(self, key: Key) -> bool:
        """Whether this context has a lease for the key."""
        return key in self._noted.get().tickets

    def forget(self) -> None:
        """End all leases of this context."""
        self._noted.set(_NOTHING)
