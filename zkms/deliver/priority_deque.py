"""A double-ended queue in which what has a higher priority comes first, and the rest in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class PriorityDeque(Generic[T]):
    """One deque for each priority; as cheap as a deque while nothing has one."""

    __slots__ = ("_plain", "_urgent")

    def __init__(self) -> None:
        self._plain: deque[T] = deque()
        self._urgent: dict[int, deque[T]] = {}

    def __len__(self) -> int:
        return len(self._plain) + sum(map(len, self._urgent.values()))

    def __bool__(self) -> bool:
        return bool(self._plain) or bool(self._urgent)

    @property
    def top(self) -> int:
        """The highest priority there is; -1 if there is nothing."""
        return max(self._urgent) if self._urgent else 0 if self._plain else -1

    def append(self, item: T, priority: int = 0) -> None:
        """After all others of its priority."""
        self._rank(priority).append(item)

    def appendleft(self, item: T, priority: int = 0) -> None:
        """Before all others of its priority."""
        self._rank(priority).appendleft(item)

    def extend(self, items: Iterable[tuple[T, int]]) -> None:
        """Each after all others of its priority."""
        for item, priority in items:
            self._rank(priority).append(item)

    def popleft(self) -> T:
        """The first one of the highest priority."""
        if not self._urgent:
            return self._plain.popleft()
        top = max(self._urgent)
        rank = self._urgent[top]
        item = rank.popleft()
        if not rank:
            del self._urgent[top]
        return item

    def clear(self) -> None:
        """Forget all."""
        self._plain.clear()
        self._urgent.clear()

    def _rank(self, priority: int) -> deque[T]:
        return self._urgent.setdefault(priority, deque()) if priority else self._plain
