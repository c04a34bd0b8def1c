"""coherent(): makes an existing mapping, which a program uses as a cache, coherent across nodes.

users = zkms.cache.coherent(cachetools.TTLCache(1000, 60), bus, "users")

@cachetools.cached(users)
def load_user(user_id): ...

del users[cachetools.keys.hashkey(42)]      # on every node
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zkms.cache.cache import Cache
from zkms.cache.outcome import Outcome
from zkms.cache.stats import OnEvent
from zkms.cache.store import MISSING, UNTRUSTED
from zkms.errors import InvalidArgument

_NO_DEFAULT: Any = object()

if TYPE_CHECKING:
    from zkms.bus import Bus

K = TypeVar("K")
V = TypeVar("V")


class Coherent(MutableMapping[K, V], Generic[K, V]):
    """A mapping that is empty while it is not trusted, and drops what other nodes drop.

    Setting an item stores it here, unless the key was invalidated since this thread or task missed it; deleting one
    (del, pop, clear) drops it on every node. `cache` is the zkms.Cache behind it.
    """

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    def __repr__(self) -> str:
        return f"<Coherent {self.cache!r}>"

    def __getitem__(self, key: K) -> V:
        _, value = self.cache.look(key)
        if value is MISSING or value is UNTRUSTED:
            raise KeyError(key)
        found: V = value
        return found

    def __setitem__(self, key: K, value: V) -> None:
        self.cache.set(key, value)

    def __delitem__(self, key: K) -> None:
        here = self.cache.holds(key)
        self.cache.invalidate(key)  # also if it is not here: it may be elsewhere
        if not here:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in self.cache

    def __iter__(self) -> Iterator[K]:
        return iter(self.cache.keys())

    def __len__(self) -> int:
        return len(self.cache.keys())

    def pop(self, key: K, default: Any = _NO_DEFAULT) -> Any:
        """Drop a key on every node, also if it is missing here, and return its value here, or the default."""
        _, value = self.cache.look(key, note=False)
        self.cache.invalidate(key)
        if value is not MISSING and value is not UNTRUSTED:
            return value
        if default is _NO_DEFAULT:
            raise KeyError(key)
        return default

    def clear(self) -> None:
        """Drop everything, on every node."""
        self.cache.clear()

    def popitem(self) -> tuple[K, V]:
        """Remove one item from this mapping; other nodes keep theirs, since nothing has changed."""
        item: tuple[K, V] = self.cache.evict()
        return item

    def invalidate(self, key: K, wait: float | None = None) -> Outcome | None:
        """Drop a key on every node; see `Cache.invalidate`."""
        return self.cache.invalidate(key, wait)


def coherent(
    mapping: MutableMapping[K, V],
    bus: Bus,
    name: str,
    *,
    max_staleness: float = 5.0,
    on_event: OnEvent | None = None,
) -> Coherent[K, V]:
    """Make a mapping coherent with those of the same name on other nodes; from then on use only the returned object.

    The mapping is cleared, because its items were loaded before we could hear of invalidations.
    """
    if not isinstance(mapping, MutableMapping):
        raise InvalidArgument(f"coherent() takes a mutable mapping such as cachetools.TTLCache, not {mapping!r:.60}")
    return Coherent(Cache(bus, name, max_staleness=max_staleness, negative=True, on_event=on_event, mapping=mapping))
