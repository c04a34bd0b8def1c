"""The bounded buffer between the reader and whoever takes a subscription's messages."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec

from zkms.tree.entry import Entry

MAX_BYTES = 8 * 1024 * 1024
T = TypeVar("T")


class Fetched(msgspec.Struct, frozen=True):
    """An entry, its path and its data."""

    entry: Entry
    path: str
    raw: bytes


class Gap(msgspec.Struct, frozen=True):
    """Something may have been missed at this place of the stream; `reason` says why."""

    topic: str
    subscription: str
    reason: str


class Marker(msgspec.Struct, frozen=True):
    """A gap that the reader noticed; those that are entries of the queue come as such."""

    gap: Gap


Item = Fetched | Marker


class PriorityDeque(Generic[T]):
    """A deque in which a higher priority comes first; as cheap as a deque while nothing has one."""

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


class Inbox:
    """A bounded queue, by priority and then in order; `drained` is called when there is room again."""

    def __init__(self, prefetch: int, drained: Callable[[], None]) -> None:
        self._prefetch = prefetch
        self._drained = drained
        self._items: PriorityDeque[Item] = PriorityDeque()
        self._messages = 0
        self._bytes = 0
        self._ready = threading.Condition()
        self._closed = False
        self.top = -1
        """The highest priority of what is here; -1 if nothing is."""
        self._starved = False
        """Whether the reader was refused room and waits to be told of some."""
        self.arrived: Callable[[], None] | None = None
        """Called after each put() and at the end, for a taker that does not wait in take(). Must not block."""

    @property
    def ready(self) -> bool:
        """Whether take() would return at once: an item is here, or none will ever be."""
        return bool(self._items) or self._closed

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self._closed

    def room(self, messages: int, size: int) -> bool:
        """Whether so much more may be fetched, on top of what is here."""
        with self._ready:
            roomy = self._messages + messages < self._prefetch and self._bytes + size < MAX_BYTES
            self._starved = not roomy
            return roomy

    def put(self, item: Item) -> None:
        """Add an item; never blocks, as the reader asks for `room` before it fetches."""
        with self._ready:
            priority = 0
            if isinstance(item, Fetched):
                priority = item.entry.priority
                self._messages += item.entry.messages
                self._bytes += len(item.raw)
            self._items.append(item, priority)
            if priority > self.top:
                self.top = priority
            self._ready.notify()
        if self.arrived is not None:
            self.arrived()

    def take(self, timeout: float | None) -> Item | None:
        """The next item; None after `timeout` seconds without one, or when closed and empty."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._ready:
            while not self._items:
                left = None if deadline is None else deadline - time.monotonic()
                if self._closed or (left is not None and left <= 0):
                    return None
                self._ready.wait(left)
            item = self._items.popleft()
            self.top = self._items.top
            if isinstance(item, Fetched):
                self._messages -= item.entry.messages
                self._bytes -= len(item.raw)
            hungry = self._starved and self._messages <= self._prefetch // 2
            if hungry:
                self._starved = False
        if hungry:
            self._drained()
        return item

    def close(self, *, discard: bool) -> None:
        """Wake whoever waits; what is left can still be taken unless `discard`."""
        with self._ready:
            self._closed = True
            if discard:
                self._items.clear()
                self.top = -1
            self._ready.notify_all()
        if self.arrived is not None:
            self.arrived()
