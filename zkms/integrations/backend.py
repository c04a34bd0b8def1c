"""What the backends of all frameworks do: values in memory, copied on their way in and out, coherent in the cluster.

A framework has one set() for two things. After a miss it *fills* the cache with what was loaded: others have the same,
or will load it, and are not told; if the key was invalidated since the miss, the value is older than that and is not
kept. Otherwise set() is a *write*: the old value is dropped everywhere. Who has missed what is known by thread and task
until `forget()`, which a framework calls at the end of a request.

While ZooKeeper cannot be reached nothing is found and nothing is kept, so the program loads; what was to be dropped
elsewhere raises if it cannot even be remembered.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zkms.cache.outcome import Outcome
from zkms.cache.store import MISSING
from zkms.errors import ConnectionLost
from zkms.integrations.near import NearCache, NearEntry, entry
from zkms.integrations.process import BackendSettings, place

__all__ = ["MISSING", "Backend", "BackendSettings"]

log = logging.getLogger("zkms.integrations")
NOT_HEARD = -1
"""A ticket that was never given out: what is loaded while nobody tells us of changes must not be kept."""


class Backend:
    """One cache, as a framework's backend needs it. Thread-safe; any number of them share the process's cache."""

    def __init__(self, given: BackendSettings, duplicate: Callable[[Any], Any] = copy.deepcopy) -> None:
        self._place = place(given)
        self._wait = given.wait
        self._copy = duplicate

    @property
    def cache(self) -> NearCache:
        """The cache of this process; made now, if it has not been."""
        return self._place.cache()

    def get(self, key: str, *, note: bool = True) -> Any:
        """A copy of the value, or `MISSING`; a miss is noted, for set(), unless told otherwise."""
        try:
            found = self.cache.find(key, note=note)
        except ConnectionLost:
            if note:
                self._place.leases.note(key, NOT_HEARD)
            return MISSING
        return found if found is MISSING else self._copy(found)

    def has(self, key: str) -> bool:
        """Whether get() would have it; not taken for a miss, so a set() that follows is a write."""
        try:
            return self.cache.holds(key)
        except ConnectionLost:
            return False

    def set(self, key: str, value: Any, seconds: float | None) -> bool:
        """Fill or write, as the module says; False if it was not kept, or has expired already."""
        return not self.set_many({key: value}, seconds)

    def set_many(self, values: Mapping[str, Any], seconds: float | None) -> list[str]:
        """set() for several; those that were not kept."""
        if seconds is not None and seconds <= 0:
            self.delete(values)
            return list(values)
        writes = {key: value for key, value in values.items() if not self._place.leases.noted(key)}
        fills = {key: entry(self._copy(value), seconds) for key, value in values.items() if key not in writes}
        refused = [key for key, new in fills.items() if not self._fill(key, new)]
        return refused + self.write(writes, seconds)

    def write(self, values: Mapping[str, Any], seconds: float | None) -> list[str]:
        """Keep new values, and drop the old ones everywhere; those that were not kept."""
        if not values:
            return []
        cache = self.cache
        self._check(cache.write({key: entry(self._copy(value), seconds) for key, value in values.items()}, self._wait))
        return [key for key in values if not cache.holds(key)]

    def ticket(self) -> int:
        """For a load that begins now: what it loads is for fill()."""
        try:
            return self.cache.ticket
        except ConnectionLost:
            return NOT_HEARD

    def fill(self, key: str, value: Any, ticket: int) -> bool:
        """Keep what was loaded under the ticket, if nothing has invalidated it since."""
        try:
            return self.cache.fill(key, entry(self._copy(value), None), ticket)
        except ConnectionLost:
            return False

    def _fill(self, key: str, new: NearEntry) -> bool:
        try:
            return self.cache.set(key, new)
        except ConnectionLost:
            return False

    def add(self, key: str, value: Any, seconds: float | None) -> bool:
        """Fill, unless there is a value here; others are not asked, and not told."""
        if self.has(key) or (seconds is not None and seconds <= 0):
            return False
        return self._fill(key, entry(self._copy(value), seconds))

    def touch(self, key: str, seconds: float | None) -> bool:
        """Give the value here, if there is one, a new time to live."""
        if seconds is not None and seconds <= 0:
            return any(self.delete([key]))
        try:
            with self._place.changing:
                return self.cache.change(key, lambda old: entry(old.value, seconds))[1]
        except ConnectionLost:
            return False

    def change(self, key: str, function: Callable[[Any], Any]) -> Any:
        """Write a value computed from the one here, which keeps its time to live; `MISSING` if there is none."""
        with self._place.changing:
            cache = self.cache
            new, kept = cache.change(key, lambda old: NearEntry(self._copy(function(old.value)), old.expires))
        if new is MISSING:
            return MISSING
        if kept:
            self._check(cache.tell([key], self._wait))
        return self._copy(new)

    def delete(self, keys: Iterable[str]) -> list[bool]:
        """Drop these on every node; for each, whether it was here."""
        cache, names = self.cache, list(keys)
        here = [cache.holds(key) for key in names]
        if names:
            self._check(cache.drop(names, self._wait))
        return here

    def clear(self) -> None:
        """Drop everything on every node."""
        self._place.leases.forget()
        self._check(self.cache.clear(wait=self._wait))

    def forget(self) -> None:
        """A request has ended: what was missed in it says nothing about the next."""
        self._place.leases.forget()

    def _check(self, outcome: Outcome | None) -> None:
        if outcome is not None and not outcome:
            log.warning("not every node has dropped the old value within %g s: %r", self._wait, outcome)
