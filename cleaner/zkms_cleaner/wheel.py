"""A hierarchical timing wheel: what is due when, at a cost that does not depend on how much that is.

Time is cut into ticks. The first level has a slot for each of the next ticks, the second one for each turn of the
first, and so on; what is further away than the last level turns waits in a list. When a level has turned, one slot of
the level above it is spread over it. So an item is touched once a level, however long it waits.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")
_Item = tuple[int, int, T]


class Wheel(Generic[T]):
    """Keeps items until they are due, and never returns one early. It has no clock: advance() is told the time."""

    def __init__(self, now: float, *, tick: float = 0.01, slots: int = 64, levels: int = 3) -> None:
        self._length = tick
        self._slots = slots
        self._levels: list[list[list[_Item[T]]]] = [[[] for _ in range(slots)] for _ in range(levels)]
        self._beyond: list[_Item[T]] = []
        self._ready: list[_Item[T]] = []
        self._now = self._tick(now)
        """Ticks up to this one have come."""
        self._count = 0
        self._added = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due: float, item: T) -> None:
        """Keep an item until `due`."""
        tick = int(due / self._length)
        if tick * self._length < due:
            tick += 1
        self._added += 1
        self._count += 1
        self._put((tick, self._added, item))

    def advance(self, now: float) -> list[T]:
        """The items that have become due: by the tick, and in the order of adding within one."""
        target = self._tick(now)
        if target < self._now or target - self._now > self._slots**2:  # a clock that was set, or a long sleep
            self._turn_to(target)
        while self._now < target:
            self._step()
        ready, self._ready = self._ready, []
        self._count -= len(ready)
        ready.sort(key=lambda each: each[:2])
        return [item for _, _, item in ready]

    def next_due(self) -> float | None:
        """When to advance again: then something is due, or a slot is to be spread. None if it is empty."""
        if self._ready:
            return self._now * self._length
        found = []
        for level, slots in enumerate(self._levels):
            width = self._slots**level
            turn = self._now // width
            nearest = next((step for step in range(1, self._slots + 1) if slots[(turn + step) % self._slots]), None)
            if nearest is not None:
                found.append((turn + nearest) * width)
        if self._beyond:
            top = self._slots ** (len(self._levels) - 1)
            found.append((self._now // top + 1) * top)
        return min(found) * self._length if found else None

    def clear(self) -> None:
        """Forget everything."""
        self._drain()
        self._count = 0

    def _tick(self, now: float) -> int:
        """The last tick that has come, whatever the division rounds to."""
        tick = int(now / self._length)
        while tick * self._length > now:
            tick -= 1
        while (tick + 1) * self._length <= now:
            tick += 1
        return tick

    def _step(self) -> None:
        self._now += 1
        for level in range(len(self._levels) - 1, 0, -1):
            width = self._slots**level
            if self._now % width == 0:
                if level == len(self._levels) - 1 and self._beyond:
                    beyond, self._beyond = self._beyond, []
                    self._put_all(beyond)
                self._put_all(self._take(level, self._now // width))
        self._put_all(self._take(0, self._now))

    def _take(self, level: int, turn: int) -> list[_Item[T]]:
        slots, place = self._levels[level], turn % self._slots
        items, slots[place] = slots[place], []
        return items

    def _put_all(self, items: list[_Item[T]]) -> None:
        for item in items:
            self._put(item)

    def _put(self, item: _Item[T]) -> None:
        away = item[0] - self._now
        if away <= 0:
            self._ready.append(item)
            return
        for level, slots in enumerate(self._levels):
            if away < self._slots ** (level + 1):
                slots[item[0] // self._slots**level % self._slots].append(item)
                return
        self._beyond.append(item)

    def _turn_to(self, target: int) -> None:
        items = self._drain()
        self._now = target
        self._put_all(items)

    def _drain(self) -> list[_Item[T]]:
        items = [*self._ready, *self._beyond, *(item for level in self._levels for slot in level for item in slot)]
        self._ready, self._beyond = [], []
        self._levels = [[[] for _ in range(self._slots)] for _ in self._levels]
        return items
