"""The core of a cache: everything but the waiting, which threads (`cache`) and asyncio (`zkms.aio`) do differently.

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
    """The values of one cache, who has missed which of them, and this node's part in the cluster. Thread-safe."""

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
        """By name: what cached() has been put around, as references."""
        if mapping is not None:
            check_mapping(mapping)
            mapping.clear()  # loaded when nobody could have told us of changes
        self.store = CacheStore(
            new_mapping(settings.maxsize, settings.ttl) if mapping is None else mapping, negative=settings.negative
        )
        self.leases = Leases(name)
        self.node = CacheNode(bus, name, self.store, settings.max_staleness, on_event)

    def __repr__(self) -> str:
        state = "closed" if self.node.closed else "trusted" if self.store.trusted else "not trusted"
        return f"<Cache {self.name!r}: {self.store.size()} values, {state}>"

    def check(self, key: Key) -> Key:
        """The key as it travels; `Closed` if the cache is, `InvalidKey` if it is none."""
        self.node.check_open()
        return check_key(key)

    # -- reading -------------------------------------------------------------------------------------------------

    def look(self, key: Key, *, note: bool = True) -> tuple[Key, Any]:
        """The plain key, and its value, `MISSING` or `UNTRUSTED`; what is not here is noted, unless told otherwise."""
        plain = self.check(key)
        value = self.store.find(plain)
        if note and (value is MISSING or value is UNTRUSTED):
            self.leases.note(plain, self.store.ticket)
        return plain, value

    def known(self, key: Key) -> Any:
        """The value, or `MISSING`, which is noted."""
        _, value = self.look(key)
        return MISSING if value is UNTRUSTED else value

    def contains(self, key: Key) -> bool:
        """Whether the key is here and trusted; what is not is noted."""
        plain = self.check(key)
        if self.store.holds(plain):
            return True
        self.leases.note(plain, self.store.ticket)
        return False

    def patience(self, loader: Loader | None, timeout: float | None) -> float:
        """Seconds to wait for another's load, after a check of the loader."""
        if loader is not None and not callable(loader):
            raise InvalidArgument(f"loader must be callable, not {loader!r:.60}; a value to fall back on is default=")
        return self.settings.load_timeout if timeout is None else check_seconds("timeout", timeout)

    # -- writing -------------------------------------------------------------------------------------------------

    def set(self, key: Key, value: Any, tags: str | Iterable[str]) -> bool:
        """Keep a value that was loaded, unless an invalidation has come since this context missed the key."""
        plain = self.check(key)
        return self.store.set(plain, value, check_tags(tags) if tags else (), self.leases.take(plain))

    def put(self, key: Key, value: Any, tags: str | Iterable[str]) -> Future[Receipt]:
        """Keep a new value here, and send that the old one is to be dropped everywhere else."""
        plain, names = self.check(key), check_tags(tags) if tags else ()
        self.leases.take(plain)
        self.store.replace(plain, value, names)  # before it is sent: of two that put, one at least drops its own
        return self.node.send([plain])

    def drop(
        self, keys: Iterable[Key] = (), tags: str | Iterable[str] = (), *, everything: bool = False
    ) -> Future[Receipt]:
        """Drop these here, and send that they are to be dropped everywhere; the Future has the receipt."""
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
