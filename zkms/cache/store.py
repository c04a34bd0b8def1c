"""The store: values, tags, running loads and trust, under one lock. It never waits and does not know ZooKeeper.

Its methods are single steps, so that threads and asyncio can each wait in their own way between them: `find` a value;
`begin` a load, or join one; `finish` it; `drop` and `flush` for invalidations.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from zkms.cache.keys import Key
from zkms.cache.stats import CacheStats, Counters
from zkms.cache.tickets import Tickets
from zkms.errors import InvalidArgument, Timeout, ZkmsError

log = logging.getLogger("zkms.cache")
NEVER = float("-inf")
MISSING: Final = object()
"""`find` returns this for a missing key."""
UNTRUSTED: Final = object()
"""`find` returns this while the store is not trusted."""
Clock = Callable[[], float]


# After a machine has slept its caches must be untrusted; monotonic() stops during sleep.
clock: Clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


_nothing: deque[Key] = deque(maxlen=0)


class MissingExtra(ZkmsError, ImportError):
    """An optional package is missing."""


class RecursiveLoad(ZkmsError):
    """A loader asked for the key that it is loading."""


class AbandonedLoad(Exception):
    """A load that ended without a result: those that wait for it try again."""


class Flight:
    """One running load; `future` gets its value or error."""

    __slots__ = ("began", "future", "key", "owner", "tags", "ticket")

    def __init__(self, key: Key, tags: tuple[str, ...], ticket: int, owner: object) -> None:
        self.key = key
        self.tags = tags
        self.ticket = ticket
        self.owner = owner
        self.began = clock()
        self.future: Future[Any] = Future()

    def recursive(self) -> RecursiveLoad:
        """Return the error of a loader that would wait for itself."""
        return RecursiveLoad(f"the loader of {self.key!r:.80} asks for {self.key!r:.80} itself")

    def late(self, cache: str, who: str, seconds: float) -> Timeout:
        """Return the error of a timeout while another `who` (a thread, a task) was loading."""
        return Timeout(f"cache {cache!r}: another {who} has been loading {self.key!r:.80} for more than {seconds:g} s")


def new_mapping(maxsize: int, ttl: float | None) -> MutableMapping[Key, Any]:
    """Return a bounded mapping that evicts the least recently used value, and values older than `ttl` seconds."""
    try:
        import cachetools

        from zkms.cache.recent import Recent
    except ImportError as error:
        raise MissingExtra("zkms.Cache needs the package cachetools: pip install 'zkms[cache]'") from error
    return Recent(maxsize) if ttl is None else cachetools.TTLCache(maxsize, ttl, timer=clock)


def check_mapping(mapping: MutableMapping[Key, Any]) -> None:
    """Refuse a mapping that creates values by itself: an invalidation could not void them."""
    makes = getattr(type(mapping), "__missing__", None)
    if makes is not None and str(getattr(makes, "__module__", "")).partition(".")[0] != "cachetools":
        raise InvalidArgument(f"{type(mapping).__name__} makes values by itself (__missing__): give a plain mapping")


class CacheStore:
    """A mapping that returns only trusted values. Thread-safe; no method waits, except for the lock."""

    def __init__(self, mapping: MutableMapping[Key, Any], *, negative: bool = False) -> None:
        self.lock = threading.Lock()
        self.mapping = mapping
        self.at_hand: Mapping[Key, Any] = getattr(mapping, "at_hand", mapping)
        self.touched: Callable[[Key], None] = getattr(mapping, "touched", _nothing.append)
        """For fast reads: a mapping may offer a plain dict, and be told which keys are read."""
        self.until = NEVER
        """Values are trusted while the clock is below this. Read without the lock, written by one thread."""
        self.hits = 0
        self.counters = Counters()
        self._negative = negative
        self._tickets = Tickets()
        self._flights: dict[Key, Flight] = {}
        self._tagged: dict[str, set[Key]] = {}
        self._tags: dict[Key, tuple[str, ...]] = {}
        self._prune_at = 1024

    @property
    def trusted(self) -> bool:
        """Whether values may be served."""
        return clock() < self.until

    def snapshot(self) -> CacheStats:
        """Return the counters."""
        with self.lock:
            numbers = {**vars(self.counters), "flushes": dict(self.counters.flushes)}
            return CacheStats(hits=self.hits, size=len(self.mapping), trusted=self.trusted, **numbers)

    # Events outside the store that are counted here.

    def loaded(self) -> None:
        """Count a load whose value is not stored."""
        with self.lock:
            self.counters.loads += 1

    def received(self) -> None:
        """Count an applied message."""
        with self.lock:
            self.counters.received += 1

    def asked(self, count: int, coalesced: int) -> None:
        """Count invalidations to send, and how many of them are already part of a message."""
        with self.lock:
            self.counters.invalidations += count
            self.counters.coalesced += coalesced

    def sent(self) -> None:
        """Count a sent message."""
        with self.lock:
            self.counters.sent += 1

    # -- reading -------------------------------------------------------------------------------------------------

    def hit(self, key: Key) -> Any:
        """Return the value, counted as a hit; or `MISSING`, not counted, also for an invalid key."""
        if clock() < self.until:
            try:
                with self.lock:
                    value = self.at_hand[key]
                    self.touched(key)
                    self.hits += 1
                    return value
            except (KeyError, TypeError):
                pass
        return MISSING

    def find(self, key: Key) -> Any:
        """Return the value, `MISSING` or `UNTRUSTED`; counted as a hit, a miss or a bypass."""
        trusted = clock() < self.until  # before the read: a value that is read later is no older
        with self.lock:
            if not trusted:
                self.counters.bypasses += 1
                return UNTRUSTED
            try:
                value = self.at_hand[key]
            except KeyError:
                self.counters.misses += 1
                return MISSING
            self.touched(key)
            self.hits += 1
            return value

    def holds(self, key: Key) -> bool:
        """Whether `find` would return a value; not counted."""
        trusted = clock() < self.until
        with self.lock:
            return trusted and key in self.mapping

    def size(self) -> int:
        """Return the number of values, trusted or not. It needs the lock: some mappings drop expired values here."""
        with self.lock:
            return len(self.mapping)

    def keys(self) -> list[Key]:
        """Return all keys for which `find` would return a value."""
        trusted = clock() < self.until
        with self.lock:
            return list(self.mapping) if trusted else []

    def evict(self) -> tuple[Key, Any]:
        """Remove and return the item that the mapping would evict first; `KeyError` if it is empty."""
        with self.lock:
            item = self.mapping.popitem()
            self._unindex(item[0])
            return item

    @property
    def ticket(self) -> int:
        """The ticket of a load that begins now."""
        return self._tickets.now

    def supersede(self, ticket: int) -> None:
        """Replace another store: its tickets, up to this one, are void."""
        with self.lock:
            self._tickets.now = max(self._tickets.now, ticket)
            self._tickets.void_all()

    # -- loading -------------------------------------------------------------------------------------------------

    def begin(self, key: Key, tags: tuple[str, ...], owner: object, patience: float) -> tuple[Flight, bool]:
        """Return a new load for the caller to run, and True; or a running one to wait for, and False.

        A load that was invalidated since it began is not joined: its value may be too old for the caller. Nor is one
        that has taken longer than `patience` seconds: its loader may never return.
        """
        with self.lock:
            flight = self._flights.get(key)
            if flight is not None and self._valid(flight) and clock() - flight.began < patience:
                return flight, False
            flight = self._flights[key] = Flight(key, tags, self._tickets.now, owner)
            return flight, True

    def finish(self, flight: Flight, value: Any) -> bool:
        """End a load with its value: store it unless it was invalidated meanwhile, and wake the waiting callers."""
        with self.lock:
            self.counters.loads += 1
            self._land(flight)
            try:
                stored = self._keep(flight.key, value, flight.tags, flight.ticket)
            except Exception as error:  # noqa: BLE001 - the user's mapping failed; the value is valid
                log.warning("a value could not be kept: %r", error)
                stored = False
        flight.future.set_result(value)
        return stored

    def fail(self, flight: Flight, error: BaseException) -> None:
        """End a load with an error: store nothing, and wake the waiting callers."""
        with self.lock:
            self._land(flight)
        flight.future.set_exception(error)

    def set(self, key: Key, value: Any, tags: tuple[str, ...], ticket: int | None) -> bool:
        """Store a value that was loaded elsewhere with `ticket` (None: just now); False if it may not be stored."""
        with self.lock:
            return self._keep(key, value, tags, self._tickets.now if ticket is None else ticket)

    def _valid(self, flight: Flight) -> bool:
        return self._tickets.valid(flight.ticket, flight.key, flight.tags)

    def _land(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def _keep(self, key: Key, value: Any, tags: tuple[str, ...], ticket: int) -> bool:
        if not self._tickets.valid(ticket, key, tags):
            self.counters.discarded += 1
            return False
        if clock() >= self.until or (value is None and not self._negative):
            return False
        self.mapping[key] = value
        self._index(key, tags)
        return True

    # -- invalidating --------------------------------------------------------------------------------------------

    def drop(self, keys: Iterable[Key], tags: Iterable[str] = ()) -> None:
        """Drop these, and void their running loads."""
        keys, tags = list(keys), list(tags)
        with self.lock:
            self._drop(keys, tags)

    def replace(self, key: Key, value: Any, tags: tuple[str, ...], ticket: int | None = None) -> bool:
        """Drop the key and store a new value in one step; only drop it if the value's ticket is void."""
        with self.lock:
            fresh = ticket is None or self._tickets.valid(ticket, key, tags)
            self._drop([key], [])
            return fresh and self._keep(key, value, tags, self._tickets.now)

    def _drop(self, keys: list[Key], tags: list[str]) -> None:
        self._tickets.void(keys, tags)
        tagged = [key for tag in tags for key in self._tagged.pop(tag, ()) if tag in self._tags.get(key, ())]
        for key in [*keys, *tagged]:
            self.mapping.pop(key, None)
            self._unindex(key)

    def flush(self, reason: str) -> None:
        """Drop everything, and void every running load."""
        with self.lock:
            self._tickets.void_all()
            self.mapping.clear()
            self._tagged.clear()
            self._tags.clear()
            self.counters.flushes[reason] += 1

    # -- tags ----------------------------------------------------------------------------------------------------

    def tagged(self, tag: str) -> int:
        """Return how many values have the tag."""
        with self.lock:
            self._prune()
            return len(self._tagged.get(tag, ()))

    def _index(self, key: Key, tags: tuple[str, ...]) -> None:
        if key in self._tags:
            self._unindex(key)
        if tags:
            self._tags[key] = tags
            for tag in tags:
                self._tagged.setdefault(tag, set()).add(key)
            if len(self._tags) > self._prune_at:
                self._prune()
                self._prune_at = max(1024, 2 * len(self._tags))

    def _unindex(self, key: Key) -> None:
        for tag in self._tags.pop(key, ()):
            keys = self._tagged.get(tag)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._tagged[tag]

    def _prune(self) -> None:
        """Drop the tags of values that the mapping has evicted."""
        for key in [key for key in self._tags if key not in self.mapping]:
            self._unindex(key)
