"""The cache behind a backend: entries that expire each in its own time, and the steps that frameworks need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zkms.cache.cache import Cache
from zkms.cache.keys import Key, check_key
from zkms.cache.outcome import Outcome, deadline_of
from zkms.cache.store import MISSING, UNTRUSTED, MissingExtra, clock
from zkms.cache.tickets import Leases

if TYPE_CHECKING:
    from zkms.bus import Bus

FOREVER = float("inf")


class NearEntry(NamedTuple):
    """A value and the time on the cache's clock at which it expires."""

    value: Any
    expires: float


def entry(value: Any, seconds: float | None) -> NearEntry:
    """A value that expires in so many seconds; None: never."""
    return NearEntry(value, FOREVER if seconds is None else clock() + seconds)


class NearCache(Cache):
    """A zkms.Cache of `NearEntry`. What has expired is missing here, and nobody else is told."""

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
        self.core.leases = leases
        self.core.store.supersede(after)

    def find(self, key: Key, *, note: bool = True) -> Any:
        """The value, or `MISSING`. A miss is noted, unless told otherwise: a set() that follows is checked then."""
        _, found = self.look(key, note=note)
        return MISSING if found is MISSING or found is UNTRUSTED else found.value

    @property
    def ticket(self) -> int:
        """For a load that begins now; see `fill`."""
        return self.core.store.ticket

    def fill(self, key: Key, new: NearEntry, ticket: int) -> bool:
        """Keep what was loaded under the ticket, if nothing has invalidated the key since."""
        return self.core.store.set(self.core.check(key), new, (), ticket)

    def write(self, entries: Mapping[Key, NearEntry], wait: float | None) -> Outcome | None:
        """Keep new values here, and drop the old ones everywhere else: put() for several.

        Who has missed more keys than are remembered may have missed these: then they are checked like what is filled.
        """
        deadline = deadline_of(wait)
        plain = {self.core.check(key): new for key, new in entries.items()}
        for key, new in plain.items():
            self.core.store.replace(key, new, (), self.core.leases.take(key))
        return self.core.node.await_sent(self.core.node.send(plain), deadline)

    def drop(self, keys: list[Key], wait: float | None) -> Outcome | None:
        """invalidate_many(), after which a set() by this thread is a write again."""
        for key in keys:
            self.core.leases.take(self.core.check(key))
        return self.invalidate_many(keys, wait)

    def change(self, key: Key, function: Callable[[NearEntry], NearEntry]) -> tuple[Any, bool]:
        """Replace an entry by one computed from it; its new value (or `MISSING`), and whether it was kept.

        An invalidation that comes meanwhile wins. Others are not told.
        """
        plain, ticket = self.core.check(key), self.core.store.ticket
        found = self.core.store.find(plain)
        if found is MISSING or found is UNTRUSTED:
            return MISSING, False
        new = function(found)
        return new.value, self.core.store.set(plain, new, (), ticket)

    def tell(self, keys: list[Key], wait: float | None) -> Outcome | None:
        """Drop these on all other nodes, and keep them here."""
        deadline = deadline_of(wait)
        return self.core.node.await_sent(self.core.node.send([check_key(key) for key in keys]), deadline)
