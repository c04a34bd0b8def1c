"""One thread that runs short, non-blocking steps in the order they were posted: all reading and acking of a bus."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

log = logging.getLogger("zkms.loop")
_Step = tuple[Callable[..., None], tuple[Any, ...]]


class Loop:
    """Steps need no locks among themselves; they may send requests, and never wait for one."""

    def __init__(self, name: str) -> None:
        self._steps: SimpleQueue[_Step | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, step: Callable[..., None], *args: Any) -> None:
        """Run `step(*args)` on the loop's thread, after everything posted before. Callable from any thread."""
        self._steps.put((step, args))

    def close(self) -> None:
        """Finish what is posted, then end."""
        self._steps.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while (item := self._steps.get()) is not None:
            step, args = item
            try:
                step(*args)
            except Exception:
                log.exception("a step of the reader failed: %s", step)
