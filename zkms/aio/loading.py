"""Loads under way for asyncio: one for each key, for as long as somebody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from zkms.aio.waiting import returned
from zkms.cache.core import Loader
from zkms.cache.keys import Key
from zkms.cache.store import AbandonedLoad, CacheStore, Flight

_carrying: ContextVar[tuple[Flight, ...]] = ContextVar("zkms-aio-loading", default=())
"""What the current task, or one that started it, is loading."""


class Load:
    """One load, in a task of its own: whoever waits may be cancelled, and it ends when nobody waits any more."""

    def __init__(self, store: CacheStore, flight: Flight, loader: Loader, key: Key, done: Callable[[], object]) -> None:
        self._store = store
        self._flight = flight
        self._done = done
        self._waiting = 0
        self._given_up = False
        self._task = asyncio.create_task(self._run(loader, key))
        self._task.add_done_callback(self._land)  # the first callback: who waits finds the flight landed

    async def _run(self, loader: Loader, key: Key) -> Any:
        _carrying.set((*_carrying.get(), self._flight))
        return await returned(loader(key))

    def _land(self, task: asyncio.Task[Any]) -> None:
        self._done()
        if task.cancelled():
            self._store.fail(self._flight, AbandonedLoad())
        elif (error := task.exception()) is not None:
            self._store.fail(self._flight, error)
        else:
            self._store.finish(self._flight, task.result())

    async def carried_out(self) -> Any:
        """For the one who began it: its value, or what it raised."""
        await self._wait(None)
        if self._task.cancelled() and not self._given_up:
            self._task.result()  # by the loader itself: as if it had been awaited here
        return self._flight.future.result()

    async def joined(self, seconds: float, cache: str) -> Any:
        """For all others: at most so many seconds."""
        if self._flight in _carrying.get():
            raise self._flight.recursive()
        await self._wait(seconds)
        if not self._task.done():
            raise self._flight.late(cache, "task", seconds)
        return self._flight.future.result()

    async def _wait(self, seconds: float | None) -> None:
        self._waiting += 1
        try:
            await asyncio.wait([self._task], timeout=seconds)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._task.done():
                self._given_up = True
                self._task.cancel()
