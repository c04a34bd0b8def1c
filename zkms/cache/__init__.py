"""A near cache that is coherent across a cluster: `zkms.Cache`, and `coherent()` around a mapping of your own.

May import the façade (`zkms.bus`) and what is below it; `zkms.aio` and the integrations use it. Read `cache` first: it
lists the other files in order. docs/coherence.md has the model, the bound, and what happens at each fault.
"""

from zkms.cache.cache import Cache, Cached
from zkms.cache.decorator import CacheInfo
from zkms.cache.keys import InvalidKey
from zkms.cache.mapping import Coherent, coherent
from zkms.cache.outcome import Outcome
from zkms.cache.stats import CacheEvent, CacheStats
from zkms.cache.store import MissingExtra, RecursiveLoad

__all__ = [
    "Cache",
    "CacheEvent",
    "CacheInfo",
    "CacheStats",
    "Cached",
    "Coherent",
    "InvalidKey",
    "MissingExtra",
    "Outcome",
    "RecursiveLoad",
    "coherent",
]
