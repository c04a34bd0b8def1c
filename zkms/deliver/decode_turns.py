"""Large frames of one process are handled one after the other.

Dozens of subscriptions in one process would otherwise fight for Python's lock over every frame that arrives for all of
them: each waiting thread wakes two hundred times a second, and each has its own megabyte of messages in the cache.

It is a courtesy, not a right. A turn ends when its frame is done with, or else after `PATIENCE` seconds: then its
handler waits for something, and the next frame's turn begins beside it. Such a handler goes without turns for a while,
so that many of them wait at the same time and not one after the other.
"""

from __future__ import annotations

import os
import threading

LARGE = 256
"""Messages that make a frame large."""
PATIENCE = 0.1
"""Seconds that a turn lasts at the most."""
WITHOUT = 50
"""Frames that a handler which overran its turn handles without one."""


class _Process:
    """What the subscriptions of a process share."""

    door = threading.Lock()
    """Of those who wait for a turn one has a time-out; the others sleep here until it is theirs."""
    turn = threading.Lock()


def _forked() -> None:
    _Process.door, _Process.turn = threading.Lock(), threading.Lock()  # somebody may have had them


os.register_at_fork(after_in_child=_forked)


class DecodeTurn:
    """One subscription's turns; used by its delivery thread only."""

    def __init__(self) -> None:
        self._taken: threading.Lock | None = None
        self._without = 0

    def begin(self, messages: int) -> None:
        """Before a frame is decoded: wait for the others, if it is large."""
        if messages < LARGE:
            return
        if self._without:
            self._without -= 1
            return
        with _Process.door:
            if not _Process.turn.acquire(timeout=PATIENCE):
                _Process.turn = threading.Lock()
                _Process.turn.acquire()
            self._taken = _Process.turn

    def end(self) -> None:
        """When its messages are done with."""
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.release()
            if taken is not _Process.turn:
                self._without = WITHOUT
