"""An LRU cache that is as fast to read as a plain dict.

Reads are only noted, and reported to cachetools when it has to choose what to evict. Of the reads between two evictions
only the last `REMEMBERED` count.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import cachetools

from zkms.cache.keys import Key

REMEMBERED = 1024


class Recent(cachetools.LRUCache[Key, Any]):
    """An LRUCache that can also be read as `at_hand[key]; touched(key)`. Used under the store's lock."""

    def __init__(self, maxsize: int) -> None:
        super().__init__(maxsize)
        self.at_hand: dict[Key, Any] = {}
        """A copy of the mapping as a plain dict."""
        self._reads: deque[Key] = deque(maxlen=REMEMBERED)
        self.touched = self._reads.append

    def __setitem__(self, key: Key, value: Any, *args: Any) -> None:
        if len(self.at_hand) >= self.maxsize:
            self._catch_up()
        super().__setitem__(key, value)
        self.at_hand[key] = value
        self.touched(key)  # or earlier reads of other keys would count as later ones

    def __delitem__(self, key: Key, *args: Any) -> None:
        super().__delitem__(key)
        del self.at_hand[key]

    def popitem(self) -> tuple[Key, Any]:
        """Evict the least recently used item."""
        self._catch_up()
        return super().popitem()

    def clear(self) -> None:
        """Remove everything."""
        self._reads.clear()
        super().clear()
        self.at_hand.clear()

    def _catch_up(self) -> None:
        for key in self._reads:
            if key in self.at_hand:
                self[key]  # cachetools moves it to the end
        self._reads.clear()
