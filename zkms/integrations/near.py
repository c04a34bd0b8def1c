"""The cache behind a backend: entries that expire each in its own time, and the steps that frameworks need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zkms.cache.cache import Cache
from zkms.cache.keys import Key, check_key
from zkms.cache.leases import Leases
from zkms.cache.outcome import Outcome
from zkms.cache.store import MISSING, UNTRUSTED, MissingExtra, clock

if TYPE_CHECKING:
    from zkms.bus import Bus

FOREVER = float("inf")


class Entry(NamedTuple):
    """A value and the time on the cache's clock at which it expires."""

    value: Any
    expires: float


def entry(value: Any, seconds: float | None) -> Entry:
    """A value that expires in so many seconds; None: never."""
    return Entry(value, FOREVER if seconds is None else clock() + seconds)


class NearCache(Cache):
    """A zkms.Cache of `Entry`. What has expired is missing here, and nobody else is told."""

    def __init__(
        self, bus: Bus, name: str, *, maxsize: int, max_staleness: float, leases: Leases, after: int = 0
    ) -> None:
        """`leases` outlive the cache: what was missed before it was made was under tickets up to `after`."""
        try:
            import cachetools
        except ImportError as error:
            raise MissingExtra("zkms.integrations needs the package cachetools: pip install 'zkms[cache]'") from error
        mapping: Any = cachetools.TLRUCache(maxsize, lambda _key, each, _now: each.expires, timer=clock)
        super().__init__(bus, name, maxsize=maxsize, max_staleness=max_staleness, mapping=mapping)
        self._leases = leases
        self._store.supersede(after)

    def find(self, key: Key, *, note: bool = True) -> Any:
        """The value, or `MISSING`. A miss is noted, unless told otherwise: a set() that follows is checked then."""
        _, found = self.look(key, note=note)
        return MISSING if found is MISSING or found is UNTRUSTED else found.value

    @property
    def ticket(self) -> int:
        """For a load that begins now; see `fill`."""
        return self._store.ticket

    def fill(self, key: Key, new: Entry, ticket: int) -> bool:
        """Keep what was loaded under the ticket, if nothing has invalidated the key since."""
        return self._store.set(self._check(key), new, (), ticket)

    def write(self, entries: Mapping[Key, Entry], wait: float | None) -> Outcome | None:
        """Keep new values here, and drop the old ones everywhere else: put() for several.

        Who has missed more keys than are remembered may have missed these: then they are checked like what is filled.
        """
        plain = {self._check(key): new for key, new in entries.items()}
        for key, new in plain.items():
            self._store.replace(key, new, (), self._leases.take(key))
        return self._node.tell(plain, wait=wait)

    def drop(self, keys: list[Key], wait: float | None) -> Outcome | None:
        """invalidate_many(), after which a set() by this thread is a write again."""
        for key in keys:
            self._leases.take(self._check(key))
        return self.invalidate_many(keys, wait)

    def change(self, key: Key, function: Callable[[Entry], Entry]) -> tuple[Any, bool]:
        """Replace an entry by one computed from it; its new value (or `MISSING`), and whether it was kept.

        An invalidation that comes meanwhile wins. Others are not told.
        """
        plain, ticket = self._check(key), self._store.ticket
        found = self._store.find(plain)
        if found is MISSING or found is UNTRUSTED:
            return MISSING, False
        new = function(found)
        return new.value, self._store.set(plain, new, (), ticket)

    def tell(self, keys: list[Key], wait: float | None) -> Outcome | None:
        """Drop these on all other nodes, and keep them here."""
        return self._node.tell([check_key(key) for key in keys], wait=wait)
