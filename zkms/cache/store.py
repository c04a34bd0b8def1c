"""The store: values, tags, loads under way and trust, in one lock. It never waits and knows nothing of ZooKeeper.

What may be asked of it are single steps, so that threads and asyncio can wait between them each in their own way:
`find` a value; `begin` a load, or join one; `finish` it; `drop` and `flush` as invalidations come.
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
"""What `find` returns for a key that is not there."""
UNTRUSTED: Final = object()
"""What it returns while nothing can be trusted."""
Clock = Callable[[], float]


# A machine that sleeps must find its cache untrusted when it wakes up; monotonic() stands still meanwhile.
clock: Clock = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


_nothing: deque[Key] = deque(maxlen=0)


class MissingExtra(ZkmsError, ImportError):
    """A package is needed that `pip install zkms` does not bring."""


class RecursiveLoad(ZkmsError):
    """A loader asked for the very key that it is loading."""


class AbandonedLoad(Exception):
    """A load that ended without an answer for those who wait for it: they begin again."""


class Flight:
    """One load under way; `future` has its value or error for whoever joins."""

    __slots__ = ("began", "future", "key", "owner", "tags", "ticket")

    def __init__(self, key: Key, tags: tuple[str, ...], ticket: int, owner: object) -> None:
        self.key = key
        self.tags = tags
        self.ticket = ticket
        self.owner = owner
        self.began = clock()
        self.future: Future[Any] = Future()

    def recursive(self) -> RecursiveLoad:
        """The error for a loader that would wait for itself."""
        return RecursiveLoad(f"the loader of {self.key!r:.80} asks for {self.key!r:.80} itself")

    def late(self, cache: str, who: str, seconds: float) -> Timeout:
        """The error for one who has waited long enough for another `who` (a thread, a task)."""
        return Timeout(f"cache {cache!r}: another {who} has been loading {self.key!r:.80} for more than {seconds:g} s")


def new_mapping(maxsize: int, ttl: float | None) -> MutableMapping[Key, Any]:
    """A bounded mapping: least recently used goes first, and what is older than `ttl` seconds is gone."""
    try:
        import cachetools

        from zkms.cache.recent import Recent
    except ImportError as error:
        raise MissingExtra("zkms.Cache needs the package cachetools: pip install 'zkms[cache]'") from error
    return Recent(maxsize) if ttl is None else cachetools.TTLCache(maxsize, ttl, timer=clock)


def check_mapping(mapping: MutableMapping[Key, Any]) -> None:
    """Refuse one that makes values by itself: nobody would know when, so an invalidation could not void them."""
    makes = getattr(type(mapping), "__missing__", None)
    if makes is not None and str(getattr(makes, "__module__", "")).partition(".")[0] != "cachetools":
        raise InvalidArgument(f"{type(mapping).__name__} makes values by itself (__missing__): give a plain mapping")


class CacheStore:
    """A mapping that gives only what can be trusted. Thread-safe; no method waits for more than the lock."""

    def __init__(self, mapping: MutableMapping[Key, Any], *, negative: bool = False) -> None:
        self.lock = threading.Lock()
        self.mapping = mapping
        self.at_hand: Mapping[Key, Any] = getattr(mapping, "at_hand", mapping)
        self.touched: Callable[[Key], None] = getattr(mapping, "touched", _nothing.append)
        """How to read quickly: a mapping may offer a plain dict, and want to be told which keys are read."""
        self.until = NEVER
        """Values may be served as long as the clock is below this. Read without the lock, written by one thread."""
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
        """Whether values may be served without asking."""
        return clock() < self.until

    def snapshot(self) -> CacheStats:
        """The counters now."""
        with self.lock:
            numbers = {**vars(self.counters), "flushes": dict(self.counters.flushes)}
            return CacheStats(hits=self.hits, size=len(self.mapping), trusted=self.trusted, **numbers)

    # What goes past the store is counted here too.

    def loaded(self) -> None:
        """A loader was called by somebody who may not store."""
        with self.lock:
            self.counters.loads += 1

    def received(self) -> None:
        """A message was applied."""
        with self.lock:
            self.counters.received += 1

    def asked(self, count: int, coalesced: int) -> None:
        """So many invalidations are to be sent; some of them are on their way already."""
        with self.lock:
            self.counters.invalidations += count
            self.counters.coalesced += coalesced

    def sent(self) -> None:
        """A message was sent."""
        with self.lock:
            self.counters.sent += 1

    # -- reading -------------------------------------------------------------------------------------------------

    def hit(self, key: Key) -> Any:
        """The value, counted as a hit, or `MISSING`, not counted: if it is not here, or may be no key at all."""
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
        """The value, `MISSING` or `UNTRUSTED`; counted as a hit, a miss or a bypass."""
        trusted = clock() < self.until  # before we look: what is there later is no older
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
        """Whether `find` would have it; not counted."""
        trusted = clock() < self.until
        with self.lock:
            return trusted and key in self.mapping

    def size(self) -> int:
        """How many values are here, trusted or not. With the lock: some mappings drop what has expired meanwhile."""
        with self.lock:
            return len(self.mapping)

    def keys(self) -> list[Key]:
        """All that `find` would have."""
        trusted = clock() < self.until
        with self.lock:
            return list(self.mapping) if trusted else []

    def evict(self) -> tuple[Key, Any]:
        """Take out what the mapping would part with first; `KeyError` if it has nothing."""
        with self.lock:
            item = self.mapping.popitem()
            self._unindex(item[0])
            return item

    @property
    def ticket(self) -> int:
        """For a load that begins now."""
        return self._tickets.now

    def supersede(self, ticket: int) -> None:
        """This store takes the place of another: tickets up to this one, which are of that other, are void."""
        with self.lock:
            self._tickets.now = max(self._tickets.now, ticket)
            self._tickets.void_all()

    # -- loading -------------------------------------------------------------------------------------------------

    def begin(self, key: Key, tags: tuple[str, ...], owner: object, patience: float) -> tuple[Flight, bool]:
        """A load of the key to carry out, with True; or one under way to wait for, with False.

        One that was invalidated since it began is not joined: its value is older than what the caller may see. Nor is
        one that has taken longer than `patience` seconds: its loader may never return.
        """
        with self.lock:
            flight = self._flights.get(key)
            if flight is not None and self._valid(flight) and clock() - flight.began < patience:
                return flight, False
            flight = self._flights[key] = Flight(key, tags, self._tickets.now, owner)
            return flight, True

    def finish(self, flight: Flight, value: Any) -> bool:
        """The load has come to a value: keep it, if nothing has invalidated it meanwhile; tell whoever waits."""
        with self.lock:
            self.counters.loads += 1
            self._land(flight)
            try:
                stored = self._keep(flight.key, value, flight.tags, flight.ticket)
            except Exception as error:  # noqa: BLE001 - a mapping of the user's; the value is good all the same
                log.warning("a value could not be kept: %r", error)
                stored = False
        flight.future.set_result(value)
        return stored

    def fail(self, flight: Flight, error: BaseException) -> None:
        """The load has failed: nothing is kept; whoever waits is told."""
        with self.lock:
            self._land(flight)
        flight.future.set_exception(error)

    def set(self, key: Key, value: Any, tags: tuple[str, ...], ticket: int | None) -> bool:
        """Keep a value that was loaded elsewhere under `ticket` (None: just now); False if it may not be kept."""
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
        """Forget these, and detach the loads of them that are under way."""
        keys, tags = list(keys), list(tags)
        with self.lock:
            self._drop(keys, tags)

    def replace(self, key: Key, value: Any, tags: tuple[str, ...], ticket: int | None = None) -> bool:
        """Drop the key and keep a new value, in one step; only drop it, if the value's ticket is void."""
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
        """Forget everything, and detach every load that is under way."""
        with self.lock:
            self._tickets.void_all()
            self.mapping.clear()
            self._tagged.clear()
            self._tags.clear()
            self.counters.flushes[reason] += 1

    # -- tags ----------------------------------------------------------------------------------------------------

    def tagged(self, tag: str) -> int:
        """How many values have the tag."""
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
        """Forget the tags of what the mapping has evicted by itself."""
        for key in [key for key in self._tags if key not in self.mapping]:
            self._unindex(key)
