"""Large frames of one process are handled one after the other.

Dozens of subscriptions in one process would otherwise fight for Python's lock over every frame that arrives for all of
them: each waiting thread wakes two hundred times a second, and each has its own megabyte of messages in the cache. It
is a courtesy, not a right: a handler that blocks holds up the others for `PATIENCE` seconds a frame at the most.
"""

from __future__ import annotations

import os
import threading

LARGE = 256
"""Messages that make a frame large."""
PATIENCE = 0.02
"""Seconds that one waits for its turn."""


class _Process:
    """What the subscriptions of a process share."""

    lock = threading.Lock()


def _forked() -> None:
    _Process.lock = threading.Lock()  # somebody may have had it when the process was forked


os.register_at_fork(after_in_child=_forked)


class Turn:
    """One subscription's turns; used by its delivery thread only."""

    def __init__(self) -> None:
        self._held: threading.Lock | None = None

    def begin(self, messages: int) -> None:
        """Before a frame is decoded: wait for the others, if it is large."""
        if messages >= LARGE:
            lock = _Process.lock
            self._held = lock if lock.acquire(timeout=PATIENCE) else None

    def end(self) -> None:
        """When its messages are done with."""
        if self._held is not None:
            self._held.release()
            self._held = None
