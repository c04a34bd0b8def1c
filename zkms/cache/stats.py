"""The counters of a cache, and its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec


class CacheStats(msgspec.Struct, frozen=True):
    """Counters since the cache was made, read at one moment."""

    hits: int
    misses: int
    loads: int
    """Loaders that were called and returned, bypasses included."""
    bypasses: int
    """Reads that bypassed the cache, because it was not trusted."""
    discarded: int
    """Values that were not stored, because an invalidation came while they were loaded."""
    invalidations: int
    """Keys, tags and clears requested here."""
    coalesced: int
    """Those that were already part of a waiting message."""
    sent: int
    """Messages that carried them."""
    received: int
    """Messages from other nodes that were applied."""
    flushes: Mapping[str, int]
    """How often everything was dropped, by reason."""
    size: int
    trusted: bool


class CacheEvent(msgspec.Struct, frozen=True):
    """A change of a cache's state, for operators."""

    cache: str
    kind: str
    """"flushed", "untrusted", "trusted", or "unsent": invalidations that cannot be sent at the moment."""
    reason: str
    detail: str = ""


OnEvent = Callable[[CacheEvent], object]


class Counters:
    """The counters behind `CacheStats`; changed under the store's lock."""

    def __init__(self) -> None:
        self.misses = self.loads = self.bypasses = self.discarded = 0
        self.invalidations = self.coalesced = self.sent = self.received = 0
        self.flushes: Counter[str] = Counter()
