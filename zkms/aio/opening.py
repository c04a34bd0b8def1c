"""What takes a while to open: awaited or entered; and undone if nobody waits for it any more."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from zkms.aio.calls import Calls
from zkms.errors import Closed

T = TypeVar("T")


class Opening(Generic[T]):
    """Opens something on a worker, once; `undo` closes what was opened for nobody."""

    def __init__(self, calls: Calls, make: Callable[[], T], undo: Callable[[T], object], name: str) -> None:
        self._calls = calls
        self._make = make
        self._undo = undo
        self._name = name
        self._lock = threading.Lock()
        self._made: list[T] = []
        self._abandoned = False

    async def opened(self) -> T:
        """Open it, after one of the same name is undone. When cancelled, it is undone in the background."""
        calls = self._calls
        calls.check_loop()
        while (undoing := calls.undoing.get(self._name)) is not None:
            await calls.finished(undoing)
            if calls.undoing.get(self._name) is undoing:
                del calls.undoing[self._name]
        job = calls.submit(self._open)
        try:
            await calls.finished(job)
        except asyncio.CancelledError:
            with self._lock:
                self._abandoned = True
                made = self._made.copy()
            with contextlib.suppress(Closed):  # with the bus: then it is undone
                calls.undoing[self._name] = calls.submit(self._undo, made[0]) if made else job
            raise
        return job.result()

    def undone_by(self, closing: Future[Any]) -> None:
        """It is being closed: whoever opens another of the same name waits for that."""
        self._calls.undoing[self._name] = closing

    def _open(self) -> T:
        made = self._make()
        with self._lock:
            self._made.append(made)
            abandoned = self._abandoned
        if abandoned:
            self._undo(made)
        return made
