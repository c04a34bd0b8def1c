"""zkms.Cache: values in this process's memory, which any node can invalidate on all nodes.

    cache = zkms.Cache(bus, "users", maxsize=10_000, max_staleness=5.0)
    user = cache.get(42, load_user)              # load_user(42) if it is not here
    save_user(42, ...); cache.invalidate(42, wait=2.0)

The parts: `core` (shared with asyncio), `store` (values, tags, running loads; `recent` is its mapping), `tickets`
(which loaded values may be stored), `node` (its subscription), `pulse` (until when it is trusted), `sender` (sends
invalidations), `outcome` (which nodes have applied them), `decorator` and `mapping` (other ways to use it).

Threads: `zkms-deliver-...` applies invalidations of other nodes, `zkms-sender-...` sends our own, and `zkms-pulse-...`
proves that none is missed. Loaders run on their callers' threads.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, MutableMapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from zkms.cache.core import CacheCore, Loader
from zkms.cache.decorator import CachedFunction, MakeKey, MakeTags
from zkms.cache.keys import Key, check_tags
from zkms.cache.outcome import Outcome, deadline_of
from zkms.cache.settings import CacheSettings, given
from zkms.cache.stats import CacheStats, OnEvent
from zkms.cache.store import MISSING, NEVER, UNTRUSTED, AbandonedLoad, Flight, clock
from zkms.checks import check_seconds
from zkms.errors import InvalidArgument

if TYPE_CHECKING:
    from zkms.bus import Bus
    from zkms.publish.receipt import Receipt

F = TypeVar("F", bound=Callable[..., Any])


class Cache:
    """A bounded near cache that is coherent across the nodes of a cluster. Thread-safe.

    All caches of one name, on any number of nodes, drop what one of them invalidates. Values are served only if it was
    proved in the last `max_staleness` seconds that no invalidation was missed; otherwise loaders are called and nothing
    is stored. See docs/coherence.md.
    """

    def __init__(
        self,
        bus: Bus,
        name: str,
        *,
        maxsize: int = 10_000,
        ttl: float | None = None,
        max_staleness: float = 5.0,
        negative: bool = False,
        loader: Loader | None = None,
        load_timeout: float = 30.0,
        on_event: OnEvent | None = None,
        mapping: MutableMapping[Any, Any] | None = None,
    ) -> None:
        """Make the cache `name` of this bus, empty; a bus has one of each name.

        It stores `maxsize` values, each for `ttl` seconds (None: no limit). `negative=True` also stores a loader's
        None. `loader(key)` is used by `cache[key]` and by get() without a loader. A call waits for another caller's
        load for `load_timeout` seconds. `on_event(event)` is called on flushes and on changes of trust. `mapping`
        replaces the cache's own mapping; it is cleared.
        """
        for what, callback in (("loader", loader), ("on_event", on_event)):
            if callback is not None and not callable(callback):
                raise InvalidArgument(f"{what} must be callable, not {callback!r:.60}")
        self.name = name
        self.settings = CacheSettings(
            maxsize=maxsize, ttl=ttl, max_staleness=max_staleness, negative=negative, load_timeout=load_timeout
        ).checked(bus.parts.session.timeout)
        self._bus = bus
        self._loader = loader
        self.core = CacheCore(bus, name, self.settings, on_event, mapping)
        """Internal: the part that zkms.aio shares."""
        _enter(self)
        try:
            self.core.node.start()
        except BaseException:
            _leave(self)
            raise
        # The bus keeps a reference: a cache without other references still has its threads and its name.
        self._stay = bus.parts.context.lifetime.before_close(self._stop)

    @classmethod
    def shared(cls, bus: Bus, name: str, **settings: Any) -> Cache:
        """Return the cache `name` of this bus, a new one if there is none; `InvalidArgument` if its settings differ."""
        with _sharing:
            known = _open.get((id(bus), name))
            if known is None or known.closed:
                return cls(bus, name, **settings)
        if other := known.settings.difference(given(settings).checked(bus.parts.session.timeout)):
            raise InvalidArgument(f"this bus has a cache {name!r} already, with {other}")
        return known

    def __repr__(self) -> str:
        return repr(self.core)

    # -- reading -------------------------------------------------------------------------------------------------

    def get(
        self,
        key: Key,
        loader: Loader | None = None,
        *,
        default: Any = None,
        tags: str | Iterable[str] = (),
        timeout: float | None = None,
    ) -> Any:
        """Return the value; if it is missing, load it with `loader(key)` and store it; without a loader, `default`.

        One thread loads a key, others wait for it: at most `timeout` seconds (default `load_timeout`), then `Timeout`.
        An error of the loader is raised, and nothing is stored.
        """
        store = self.core.store
        if clock() < store.until:  # store.hit() inlined: the call would take a tenth of the time
            try:
                with store.lock:
                    value = store.at_hand[key]
                    store.touched(key)
                    store.hits += 1
                    return value
            except (KeyError, TypeError):
                pass  # missing or not a key: the code below finds out
        loader = loader or self._loader
        patience = self.core.patience(loader, timeout)
        value = self.core.known(key) if loader is None else self._load(key, loader, tags, patience)
        return default if value is MISSING else value

    def __getitem__(self, key: Key) -> Any:
        value = self.get(key, default=MISSING)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key: Key) -> bool:
        return self.core.contains(key)

    def __len__(self) -> int:
        return self.core.store.size()

    def holds(self, key: Key) -> bool:
        """Whether it is here and trusted, like `in`, but without a lease for a later set()."""
        return self.core.store.holds(self.core.check(key))

    def keys(self) -> list[Key]:
        """Return the keys that are here and trusted."""
        self.core.node.check_open()
        return self.core.store.keys()

    def evict(self) -> tuple[Key, Any]:
        """Remove one value, here only; `KeyError` if there is none."""
        self.core.node.check_open()
        return self.core.store.evict()

    @property
    def trusted(self) -> bool:
        """Whether values are served: it is proved that no invalidation was missed."""
        return self.core.store.trusted

    @property
    def closed(self) -> bool:
        """Whether it was closed, by itself or with its bus."""
        return self.core.node.closed

    @property
    def stats(self) -> CacheStats:
        """Counters."""
        return self.core.store.snapshot()

    def look(self, key: Key, *, note: bool = True) -> tuple[Key, Any]:
        """Return the plain key, and its value, `MISSING` or `UNTRUSTED`; for callers with their own way to wait.

        Never blocks. A miss takes a lease if `note`, so that a later set() by this thread or task is checked.
        """
        return self.core.look(key, note=note)

    def _load(self, key: Key, loader: Loader, tags: str | Iterable[str], patience: float) -> Any:
        store = self.core.store
        plain, names = self.core.check(key), check_tags(tags) if tags else ()
        while True:
            value = store.find(plain)
            if value is UNTRUSTED:
                value = loader(key)
                store.loaded()
                return value
            if value is not MISSING:
                return value
            flight, mine = store.begin(plain, names, threading.get_ident(), self.settings.load_timeout)
            if mine:
                return self._carry_out(flight, loader, key)
            try:
                return self._join(flight, patience)
            except AbandonedLoad:
                continue  # the loading thread was interrupted: try again

    def _carry_out(self, flight: Flight, loader: Loader, key: Key) -> Any:
        try:
            value = loader(key)
        except Exception as error:
            self.core.store.fail(flight, error)
            raise
        except BaseException:
            self.core.store.fail(flight, AbandonedLoad())
            raise
        self.core.store.finish(flight, value)
        return value

    def _join(self, flight: Flight, patience: float) -> Any:
        if flight.owner == threading.get_ident():
            raise flight.recursive()
        try:
            return flight.future.result(patience)
        except TimeoutError:
            if flight.future.done():  # the loader raised it
                raise
            raise flight.late(self.name, "thread", patience) from None

    # -- writing -------------------------------------------------------------------------------------------------

    def set(self, key: Key, value: Any, *, tags: str | Iterable[str] = ()) -> bool:
        """Store a value that you have loaded, on this node only; return whether it was stored.

        If this thread or task has missed the key before, the value is stored only if the key was not invalidated since;
        otherwise it counts as loaded just now.
        """
        return self.core.set(key, value, tags)

    def __setitem__(self, key: Key, value: Any) -> None:
        self.set(key, value)

    def put(self, key: Key, value: Any, *, tags: str | Iterable[str] = (), wait: float | None = None) -> Outcome | None:
        """Store a new value here and drop the old one on all other nodes: for caches without a database."""
        deadline = deadline_of(wait)
        return self.core.node.await_sent(self.core.put(key, value, tags), deadline)

    def invalidate(self, key: Key, wait: float | None = None) -> Outcome | None:
        """Drop a key on every node: here before this returns, elsewhere soon.

        With `wait`, return when every live node has dropped it, or after `wait` seconds: the `Outcome` is true, or says
        which nodes have not. Without, return None at once.
        """
        return self.invalidate_many([key], wait)

    def invalidate_many(self, keys: Iterable[Key], wait: float | None = None) -> Outcome | None:
        """Drop several keys on every node; see invalidate()."""
        deadline = deadline_of(wait)
        return self.core.node.await_sent(self.core.drop(keys), deadline)

    def invalidate_tag(self, tag: str | Iterable[str], wait: float | None = None) -> Outcome | None:
        """Drop the values with this tag, or with one of these tags, on every node."""
        deadline = deadline_of(wait)
        return self.core.node.await_sent(self.core.drop(tags=tag), deadline)

    def clear(self, everywhere: bool = True, wait: float | None = None) -> Outcome | None:
        """Drop everything, on every node or only here."""
        deadline = deadline_of(wait)
        if not everywhere:
            self.core.flush()
            return None
        return self.core.node.await_sent(self.core.drop(everything=True), deadline)

    def cached(
        self,
        *,
        key: MakeKey | None = None,
        tags: MakeTags = (),
        name: str | None = None,
    ) -> Callable[[F], Cached]:
        """Decorate a function like functools.cache: its results are cached by its arguments.

        The function gets `cache_info()`, `cache_clear()` and `invalidate(*args, wait=None)`. `key(*args)` and
        `tags(*args)` compute a result's key and tags. `name` distinguishes functions with the same name in Python.
        """
        self.core.node.check_open()
        return lambda function: Cached(self, function, key, tags, name)

    def send(self, keys: Iterable[Key] = (), tags: Iterable[str] = (), *, everything: bool = False) -> Future[Receipt]:
        """Drop these here and send the invalidation; the Future gets the receipt.

        For callers with their own way to wait, which pass the receipt to `await_receipt`.
        """
        return self.core.drop(keys, tags, everything=everything)

    def await_receipt(self, receipt: Receipt, deadline: float) -> Outcome:
        """Wait until every node has applied the invalidation, or until the deadline on time.monotonic()."""
        return self.core.node.await_receipt(receipt, deadline)

    # -- life ----------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 5.0) -> None:
        """Stop serving, send waiting invalidations, and unsubscribe. Safe to call again."""
        timeout = check_seconds("timeout", timeout)
        self._bus.parts.session.check_process()
        if self.core.node.stop(timeout):
            self._stay()
            self.core.node.leave(timeout)

    def _stop(self, timeout: float) -> None:
        """Stop before the bus unsubscribes: after that, invalidations would be missed."""
        self.core.node.stop(timeout)

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Cached(CachedFunction):
    """A function whose results are cached. Called like the function itself."""

    def __init__(
        self, cache: Cache, function: Callable[..., Any], key: MakeKey | None, tags: MakeTags, name: str | None
    ) -> None:
        super().__init__(cache.core, function, key, tags, name)
        self._cache = cache

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the cached result for these arguments, or call the function."""
        load = self.counted(args, kwargs)
        return self._cache.get(self.cache_key(*args, **kwargs), load, tags=self.cache_tags(*args, **kwargs))

    def cache_clear(self, wait: float | None = None) -> Outcome | None:
        """Drop all results of this function, on every node."""
        return self._cache.invalidate_tag(self.tag, wait)

    def invalidate(self, *args: Any, wait: float | None = None, **kwargs: Any) -> Outcome | None:
        """Drop the result for these arguments, on every node."""
        return self._cache.invalidate(self.cache_key(*args, **kwargs), wait)


_open: weakref.WeakValueDictionary[tuple[int, str], Cache] = weakref.WeakValueDictionary()
_entering, _sharing = threading.Lock(), threading.Lock()


def _enter(cache: Cache) -> None:
    """Register a cache; a bus has only one of each name, because it does not get its own invalidations."""
    with _entering:
        other = _open.get((id(cache._bus), cache.name))
        if other is not None and not other.closed:
            differs = other.settings.difference(cache.settings)
            raise InvalidArgument(
                f"this bus has a cache {cache.name!r} already{', with ' if differs else ''}{differs}: "
                "use that one, or zkms.Cache.shared(bus, name, ...)"
            )
        _open[id(cache._bus), cache.name] = cache


def _leave(cache: Cache) -> None:
    with _entering:
        if _open.get((id(cache._bus), cache.name)) is cache:
            del _open[id(cache._bus), cache.name]


def _distrust_after_fork() -> None:
    """Make caches untrusted in a forked child, where no thread applies invalidations; reads raise `UsedAfterFork`.

    Locks are replaced, because a thread of the parent may have locked them.
    """
    global _entering, _sharing
    _entering, _sharing = threading.Lock(), threading.Lock()
    for cache in _open.values():
        cache.core.store.until = NEVER
        cache.core.store.lock = threading.Lock()


os.register_at_fork(after_in_child=_distrust_after_fork)
