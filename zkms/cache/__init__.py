"""A near cache that is coherent across a cluster: `zkms.Cache`, and `coherent()` around a mapping of your own.

`cache` has the files in order. docs/coherence.md has the model, the bound, and what happens at each fault.
"""

from zkms.cache.cache import Cache, RecursiveLoad
from zkms.cache.decorator import Cached, CacheInfo
from zkms.cache.keys import InvalidKey
from zkms.cache.mapping import Coherent, coherent
from zkms.cache.outcome import Outcome
from zkms.cache.stats import CacheEvent, CacheStats
from zkms.cache.store import MissingExtra

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
