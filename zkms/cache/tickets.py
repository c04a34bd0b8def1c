"""Tickets: whether what was loaded may still be stored.

Every invalidation that a node applies has a number, ascending. Whoever begins to load takes a ticket, the number of the
last one; the value may be stored if its key (and tags) were not invalidated by a later one. So a value that was read
before a change can never be stored after the change was announced, however long the load took.

The numbers are kept for the keys invalidated last. For one that was forgotten, the highest number forgotten stands in:
a very old ticket may then be refused without need, and none is accepted that should not be.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from zkms.cache.keys import Key

REMEMBERED = 20_000


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
