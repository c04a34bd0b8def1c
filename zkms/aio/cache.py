"""zkms.aio.Cache: the coherent near cache for asyncio, with loaders that are awaited.

    async with zkms.aio.Cache(bus, "users") as cache:
        user = await cache.get(42, load_user)        # await load_user(42) if it is not here
        await save_user(42, ...); await cache.invalidate(42, wait=2.0)

It is the threaded cache, with the same store, rules and threads (see zkms/cache/cache.py); only the waiting is done on
the event loop: for loads, and for the nodes that have to drop a value.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterable, MutableMapping
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from zkms.aio.calls import OpenedOnce, returned
from zkms.aio.receipt import Receipt
from zkms.cache.cache import Cache as ThreadedCache
from zkms.cache.core import CacheCore, Loader
from zkms.cache.decorator import CachedFunction, MakeKey, MakeTags
from zkms.cache.keys import Key, check_tags
from zkms.cache.outcome import NOT_YET, Outcome, deadline_of, unsent
from zkms.cache.settings import CacheSettings
from zkms.cache.stats import CacheEvent, CacheStats, OnEvent
from zkms.cache.store import MISSING, UNTRUSTED, AbandonedLoad, CacheStore, Flight
from zkms.checks import check_seconds
from zkms.errors import Closed, ConnectionLost, InvalidArgument, ZkmsError
from zkms.publish.receipt import Receipt as ThreadedReceipt

if TYPE_CHECKING:
    from zkms.aio.bus import Bus

log = logging.getLogger("zkms.aio")
F = TypeVar("F", bound=Callable[..., Any])
_carrying: ContextVar[tuple[Flight, ...]] = ContextVar("zkms-aio-loading", default=())
"""What the current task, or one that started it, is loading."""
PAUSE = 0.1
"""Seconds between two looks at the clock, while only nodes that have vanished are waited for."""


class Cache(OpenedOnce[ThreadedCache]):
    """A bounded near cache that is coherent across a cluster: use it in `async with`, or `await` it and close() it."""

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
        """The arguments are those of zkms.Cache; `loader` and `on_event` may be coroutine functions."""
        for what, callback in (("loader", loader), ("on_event", on_event)):
            if callback is not None and not callable(callback):
                raise InvalidArgument(f"{what} must be callable, not {callback!r:.60}")
        self.name = name
        calls = bus.calls()
        self._loader = loader
        self._on_event = on_event
        self._events: set[asyncio.Future[None]] = set()
        self._loads: dict[Flight, Load] = {}
        make = functools.partial(
            ThreadedCache,
            bus.threaded,
            name,
            maxsize=maxsize,
            ttl=ttl,
            max_staleness=max_staleness,
            negative=negative,
            load_timeout=load_timeout,
            on_event=None if on_event is None else lambda event: calls.post(self._hear, event),
            mapping=mapping,
        )
        again = "a cache is opened once: make another zkms.aio.Cache"
        super().__init__(calls, f"cache {name}", make, ThreadedCache.close, again=again)

    def __repr__(self) -> str:
        return f"<aio.Cache {self.name!r}: not open>" if self._threaded is None else f"<aio.{repr(self._threaded)[1:]}"

    # -- life ----------------------------------------------------------------------------------------------------

    async def close(self, timeout: float = 5.0) -> None:
        """Serve nothing more, send what waits, and leave; harmless if that is done, and goes on when cancelled."""
        timeout = check_seconds("timeout", timeout)
        self._calls.check_loop()
        if self._threaded is not None and not self._threaded.closed:
            try:
                closing = self._calls.submit(self._threaded.close, timeout)
            except Closed:
                return  # with the bus
            self._calls.undoing[self._opens] = closing  # another of this name waits for it, also if we are cancelled
            await self._calls.finished(closing)
            closing.result()

    @property
    def threaded(self) -> ThreadedCache:
        """The cache below, for what is not here: some of its calls wait."""
        if self._threaded is None:
            raise Closed(f"cache {self.name!r} is not open: use `async with zkms.aio.Cache(...)`, or await it")
        return self._threaded

    @property
    def closed(self) -> bool:
        """Whether it was closed, by itself or with its bus."""
        return self._threaded is not None and self._threaded.closed

    @property
    def settings(self) -> CacheSettings:
        """What it was made with."""
        return self.threaded.settings

    @property
    def trusted(self) -> bool:
        """Whether values are served: it is proved that no invalidation can have been missed."""
        return self.threaded.trusted

    @property
    def stats(self) -> CacheStats:
        """Counters."""
        return self.threaded.stats

    def _hear(self, event: CacheEvent) -> None:
        """On the loop."""
        if self._on_event is not None:
            told = asyncio.ensure_future(self._tell_event(self._on_event, event))
            self._events.add(told)
            told.add_done_callback(self._events.discard)

    async def _tell_event(self, on_event: OnEvent, event: CacheEvent) -> None:
        try:
            await returned(on_event(event))
        except Exception:
            log.exception("on_event of cache %r raised", self.name)

    # -- reading -------------------------------------------------------------------------------------------------

    async def get(
        self,
        key: Key,
        loader: Loader | None = None,
        *,
        default: Any = None,
        tags: str | Iterable[str] = (),
        timeout: float | None = None,
    ) -> Any:
        """The value; if it is not here, what `loader(key)` returns, which is then kept; without a loader, `default`.

        One task loads a key, others wait for it: at most `timeout` seconds (default `load_timeout`), then `Timeout`.
        A load goes on as long as anyone waits for it, and is cancelled with the last of them. What a loader raises is
        passed on and not kept.
        """
        core = self.threaded.core
        value = core.store.hit(key)
        if value is not MISSING:
            return value
        self._calls.check_loop()
        loader = loader or self._loader
        patience = core.patience(loader, timeout)
        value = core.known(key) if loader is None else await self._load(core, key, loader, tags, patience)
        return default if value is MISSING else value

    async def _load(self, core: CacheCore, key: Key, loader: Loader, tags: str | Iterable[str], patience: float) -> Any:
        store = core.store
        plain, names = core.check(key), check_tags(tags) if tags else ()
        while True:
            value = store.find(plain)
            if value is UNTRUSTED:
                value = await returned(loader(key))
                store.loaded()
                return value
            if value is not MISSING:
                return value
            flight, mine = store.begin(plain, names, self, core.settings.load_timeout)
            try:
                if mine:
                    load = Load(store, flight, loader, key, functools.partial(self._loads.pop, flight))
                    self._loads[flight] = load
                    return await load.carried_out()
                if flight in self._loads:
                    return await self._loads[flight].joined(patience, self.name)
                return await self._join(flight, patience)
            except AbandonedLoad:
                continue  # whoever loaded was cancelled or interrupted, which is no answer to us

    async def _join(self, flight: Flight, patience: float) -> Any:
        """Wait for a load that a thread has begun."""
        try:
            async with asyncio.timeout(patience):
                await self._calls.finished(flight.future)
        except TimeoutError:
            raise flight.late(self.name, "task", patience) from None
        return flight.future.result()

    def __contains__(self, key: Key) -> bool:
        return key in self.threaded

    def __len__(self) -> int:
        return len(self.threaded)

    def holds(self, key: Key) -> bool:
        """Whether it is here and trusted, as `in` says; but not noted as missed, so no set() depends on it."""
        return self.threaded.holds(key)

    def keys(self) -> list[Key]:
        """The keys that are here and trusted, at this moment."""
        return self.threaded.keys()

    # -- writing -------------------------------------------------------------------------------------------------

    def set(self, key: Key, value: Any, *, tags: str | Iterable[str] = ()) -> bool:
        """Keep a value that you have loaded; True if it was kept. Other nodes are not told: that is invalidate().

        If this task has missed the key before, the value is kept only if nothing has invalidated the key since;
        otherwise it is taken for loaded just now.
        """
        return self.threaded.set(key, value, tags=tags)

    async def put(
        self, key: Key, value: Any, *, tags: str | Iterable[str] = (), wait: float | None = None
    ) -> Outcome | None:
        """Keep a new value here and drop the old one everywhere else: for caches that have no database behind them."""
        deadline = deadline_of(wait)
        return await self._await(self.threaded.core.put(key, value, tags), deadline)

    async def invalidate(self, key: Key, wait: float | None = None) -> Outcome | None:
        """Drop a key on every node: here before this returns, elsewhere soon.

        With `wait`, return when every live node has dropped it, or after so many seconds: the `Outcome` is true, or
        says who has not. Without, return None at once. When
        cancelled, the invalidation is sent all the same.
        """
        return await self.invalidate_many([key], wait)

    async def invalidate_many(self, keys: Iterable[Key], wait: float | None = None) -> Outcome | None:
        """Drop several keys on every node, as invalidate() does one."""
        deadline = deadline_of(wait)
        return await self._await(self.threaded.core.drop(keys), deadline)

    async def invalidate_tag(self, tag: str | Iterable[str], wait: float | None = None) -> Outcome | None:
        """Drop on every node what was kept with this tag, or with one of these tags."""
        deadline = deadline_of(wait)
        return await self._await(self.threaded.core.drop(tags=tag), deadline)

    async def clear(self, everywhere: bool = True, wait: float | None = None) -> Outcome | None:
        """Drop everything, on every node or only here."""
        deadline = deadline_of(wait)
        if not everywhere:
            return self.threaded.clear(everywhere=False)
        return await self._await(self.threaded.core.drop(everything=True), deadline)

    async def _await(self, sent: Future[ThreadedReceipt], deadline: float | None) -> Outcome | None:
        """With a deadline: what came of an invalidation."""
        self._calls.check_loop()
        if deadline is None:
            return None
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self._calls.finished(sent)
            receipt = sent.result()
        except (TimeoutError, ZkmsError) as error:
            return unsent(error)
        return await self._wait(receipt, deadline)

    async def _wait(self, receipt: ThreadedReceipt, deadline: float) -> Outcome:
        """As InvalidationWait.wait() does."""
        waiting = self.threaded.core.node.waiting(receipt)
        own = Receipt(self._calls, receipt)
        while True:
            try:
                await own.wait_for(waiting.turn(deadline))
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._calls.run(waiting.look, deadline)
                waiting.why = NOT_YET
            except ConnectionLost as error:
                waiting.why = f"not known: {error}"
            except TimeoutError:
                pass  # the time is over, before it could be asked who has vanished
            missing = waiting.missing()
            left = deadline - time.monotonic()
            if not missing or left <= 0 or self.closed:
                return waiting.outcome(missing)
            if not receipt.pending:  # only those that have vanished: their time will be over
                await asyncio.sleep(min(left, PAUSE))

    # -- decorating ----------------------------------------------------------------------------------------------

    def cached(
        self,
        *,
        key: MakeKey | None = None,
        tags: MakeTags = (),
        name: str | None = None,
    ) -> Callable[[F], Cached]:
        """Decorate a coroutine function, in the manner of functools: its results are kept by its arguments.

        As zkms.Cache.cached(); what it gives is awaited, and so are its `cache_clear()` and `invalidate()`.
        """
        core = self.threaded.core
        return lambda function: Cached(self, core, function, key, tags, name)


class Load:
    """One load, in a task of its own: whoever waits may be cancelled, and it ends when nobody waits any more."""

    def __init__(self, store: CacheStore, flight: Flight, loader: Loader, key: Key, done: Callable[[], object]) -> None:
        self._store = store
        self._flight = flight
        self._done = done
        self._waiting = 0
        self._given_up = False
        self._task = asyncio.create_task(self._run(loader, key))
        self._task.add_done_callback(self._land)  # the first callback: who waits finds the flight landed

    async def _run(self, loader: Loader, key: Key) -> Any:
        _carrying.set((*_carrying.get(), self._flight))
        return await returned(loader(key))

    def _land(self, task: asyncio.Task[Any]) -> None:
        self._done()
        if task.cancelled():
            self._store.fail(self._flight, AbandonedLoad())
        elif (error := task.exception()) is not None:
            self._store.fail(self._flight, error)
        else:
            self._store.finish(self._flight, task.result())

    async def carried_out(self) -> Any:
        """For the one who began it: its value, or what it raised."""
        await self._wait(None)
        if self._task.cancelled() and not self._given_up:
            self._task.result()  # by the loader itself: as if it had been awaited here
        return self._flight.future.result()

    async def joined(self, seconds: float, cache: str) -> Any:
        """For all others: at most so many seconds."""
        if self._flight in _carrying.get():
            raise self._flight.recursive()
        await self._wait(seconds)
        if not self._task.done():
            raise self._flight.late(cache, "task", seconds)
        return self._flight.future.result()

    async def _wait(self, seconds: float | None) -> None:
        self._waiting += 1
        try:
            await asyncio.wait([self._task], timeout=seconds)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._task.done():
                self._given_up = True
                self._task.cancel()


class Cached(CachedFunction):
    """A coroutine function whose results are kept. Called like the function itself."""

    def __init__(
        self,
        cache: Cache,
        core: CacheCore,
        function: Callable[..., Any],
        key: MakeKey | None,
        tags: MakeTags,
        name: str | None,
    ) -> None:
        super().__init__(core, function, key, tags, name, coroutines=True)
        self._cache = cache

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The kept result for these arguments, or the function's own."""
        load = self.counted(args, kwargs)
        return await self._cache.get(self.cache_key(*args, **kwargs), load, tags=self.cache_tags(*args, **kwargs))

    async def cache_clear(self, wait: float | None = None) -> Outcome | None:
        """Drop all results of this function, on every node."""
        return await self._cache.invalidate_tag(self.tag, wait)

    async def invalidate(self, *args: Any, wait: float | None = None, **kwargs: Any) -> Outcome | None:
        """Drop the result for these arguments, on every node."""
        return await self._cache.invalidate(self.cache_key(*args, **kwargs), wait)
