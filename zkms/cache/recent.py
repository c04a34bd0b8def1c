"""The least recently used goes first, as in cachetools, at the price of a plain dict for reading.

Which keys were read is written down, and told to cachetools when it has to choose what to evict. Of very many reads
between two evictions only the last `REMEMBERED` count, which are those that matter.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import cachetools

from zkms.cache.keys import Key

REMEMBERED = 1024


class Recent(cachetools.LRUCache[Key, Any]):
    """An LRUCache that can also be read as `at_hand[key]; touched(key)`. The store's lock is around it."""

    def __init__(self, maxsize: int) -> None:
        super().__init__(maxsize)
        self.at_hand: dict[Key, Any] = {}
        """The values once more."""
        self._reads: deque[Key] = deque(maxlen=REMEMBERED)
        self.touched = self._reads.append

    def __setitem__(self, key: Key, value: Any, *args: Any) -> None:
        if len(self.at_hand) >= self.maxsize:
            self._catch_up()
        super().__setitem__(key, value)
        self.at_hand[key] = value
        self.touched(key)  # or reads that came before would be taken for later ones

    def __delitem__(self, key: Key, *args: Any) -> None:
        super().__delitem__(key)
        del self.at_hand[key]

    def popitem(self) -> tuple[Key, Any]:
        """Evict the one least recently used."""
        self._catch_up()
        return super().popitem()

    def clear(self) -> None:
        """Forget everything."""
        self._reads.clear()
        super().clear()
        self.at_hand.clear()

    def _catch_up(self) -> None:
        for key in self._reads:
            if key in self.at_hand:
                self[key]  # cachetools moves it to the end
        self._reads.clear()
