"""What a cache has done so far, and what it tells as it happens."""

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
    """Reads that the cache had no say in, because it could not be trusted."""
    discarded: int
    """Values that were loaded or set and not stored, because an invalidation came meanwhile."""
    invalidations: int
    """Keys, tags and clears asked for here."""
    coalesced: int
    """Those of them that needed no message of their own."""
    sent: int
    """Messages that carried them."""
    received: int
    """Messages from other nodes that were applied."""
    flushes: Mapping[str, int]
    """How often everything was dropped, by reason."""
    size: int
    trusted: bool


class CacheEvent(msgspec.Struct, frozen=True):
    """Something that a person who looks after the cache wants to know."""

    cache: str
    kind: str
    """"flushed", "untrusted", "trusted", or "unsent": invalidations that cannot be sent at the moment."""
    reason: str
    detail: str = ""


OnEvent = Callable[[CacheEvent], object]


class Counters:
    """The numbers behind `CacheStats`. The store's lock is around every change."""

    def __init__(self) -> None:
        self.misses = self.loads = self.bypasses = self.discarded = 0
        self.invalidations = self.coalesced = self.sent = self.received = 0
        self.flushes: Counter[str] = Counter()
