"""The part of a cache that threads (`cache`) and asyncio (`zkms.aio`) share: everything except waiting.

No method here waits for ZooKeeper or for a loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableMapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from zkms.cache.keys import Key, check_key, check_tags
from zkms.cache.node import CacheNode
from zkms.cache.settings import CacheSettings
from zkms.cache.stats import OnEvent
from zkms.cache.store import MISSING, UNTRUSTED, CacheStore, check_mapping, new_mapping
from zkms.cache.tickets import Leases
from zkms.checks import check_seconds
from zkms.errors import InvalidArgument

if TYPE_CHECKING:
    from zkms.bus import Bus
    from zkms.publish.receipt import Receipt

Loader = Callable[[Any], Any]


class CacheCore:
    """One cache: its store, its leases, and its node in the cluster. Thread-safe."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        settings: CacheSettings,
        on_event: OnEvent | None,
        mapping: MutableMapping[Any, Any] | None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.functions: dict[str, Callable[[], Any]] = {}
        """By name: references to the functions that cached() decorates."""
        if mapping is not None:
            check_mapping(mapping)
            mapping.clear()  # loaded before we could hear of invalidations
        self.store = CacheStore(
            new_mapping(settings.maxsize, settings.ttl) if mapping is None else mapping, negative=settings.negative
        )
        self.leases = Leases(name)
        self.node = CacheNode(bus, name, self.store, settings.max_staleness, on_event)

    def __repr__(self) -> str:
        state = "closed" if self.node.closed else "trusted" if self.store.trusted else "not trusted"
        return f"<Cache {self.name!r}: {self.store.size()} values, {state}>"

    def check(self, key: Key) -> Key:
        """Return the key reduced to plain types; `Closed` if the cache is closed, `InvalidKey` if it is no key."""
        self.node.check_open()
        return check_key(key)

    # -- reading -------------------------------------------------------------------------------------------------

    def look(self, key: Key, *, note: bool = True) -> tuple[Key, Any]:
        """Return the plain key, and its value, `MISSING` or `UNTRUSTED`; a miss takes a lease if `note`."""
        plain = self.check(key)
        value = self.store.find(plain)
        if note and (value is MISSING or value is UNTRUSTED):
            self.leases.note(plain, self.store.ticket)
        return plain, value

    def known(self, key: Key) -> Any:
        """Return the value, or `MISSING`; a miss takes a lease."""
        _, value = self.look(key)
        return MISSING if value is UNTRUSTED else value

    def contains(self, key: Key) -> bool:
        """Whether the key is here and trusted; a miss takes a lease."""
        plain = self.check(key)
        if self.store.holds(plain):
            return True
        self.leases.note(plain, self.store.ticket)
        return False

    def patience(self, loader: Loader | None, timeout: float | None) -> float:
        """Check the loader, and return the seconds to wait for another caller's load."""
        if loader is not None and not callable(loader):
            raise InvalidArgument(f"loader must be callable, not {loader!r:.60}; a value to fall back on is default=")
        return self.settings.load_timeout if timeout is None else check_seconds("timeout", timeout)

    # -- writing -------------------------------------------------------------------------------------------------

    def set(self, key: Key, value: Any, tags: str | Iterable[str]) -> bool:
        """Store a loaded value, unless the key was invalidated since this context missed it."""
        plain = self.check(key)
        return self.store.set(plain, value, check_tags(tags) if tags else (), self.leases.take(plain))

    def put(self, key: Key, value: Any, tags: str | Iterable[str]) -> Future[Receipt]:
        """Store a new value here, and invalidate the old one on all other nodes."""
        plain, names = self.check(key), check_tags(tags) if tags else ()
        self.leases.take(plain)
        self.store.replace(plain, value, names)  # before sending: of two concurrent puts, at least one drops its own
        return self.node.send([plain])

    def drop(
        self, keys: Iterable[Key] = (), tags: str | Iterable[str] = (), *, everything: bool = False
    ) -> Future[Receipt]:
        """Drop these here, and invalidate them on all other nodes; the Future gets the receipt."""
        self.node.check_open()
        plain, names = [check_key(key) for key in keys], check_tags(tags)
        if everything:
            self.flush()
        self.store.drop(plain, names)
        return self.node.send(plain, names, everything=everything)

    def flush(self) -> None:
        """Drop everything here."""
        self.node.check_open()
        self.node.flush("cleared", "clear() was called")
