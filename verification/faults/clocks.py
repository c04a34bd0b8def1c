"""A wall clock that jumps, for one process; a file says by how much. The monotonic clock is not changed.

A server gets libfaketime. A process of ours replaces Python's time.time(), which is what zkms asks: under libfaketime
0.9.10 Python's time.sleep() does not return.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from zkms.server.errors import ServerError

PACKAGE = "libfaketime"
VARIABLE = "ZKMS_FAULTS_CLOCK"
"""Names the file, for a process of ours."""
LOOK = 0.2
"""Seconds between two looks at it."""
_NAME = "libfaketimeMT.so.1"
_PLACES = ("/usr/lib/*/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime", "/usr/lib/faketime")


def library() -> Path | None:
    """Where libfaketime is, if it is installed."""
    return next((path for place in _PLACES for path in Path("/").glob(f"{place[1:]}/{_NAME}")), None)


class Clock:
    """The clock of a server that was started by `wrap`, or of a process with `injected` that calls `inject()`."""

    def __init__(self, path: Path) -> None:
        """Make the file that tells the time."""
        self._path = path
        self.jump(0)

    def injected(self) -> list[str]:
        """Environment of a process of ours, as NAME=VALUE."""
        return [f"{VARIABLE}={self._path}"]

    def _settings(self) -> list[str]:
        found = library()
        if found is None:
            raise ServerError(f"a clock that jumps needs the distribution's package {PACKAGE}: install it")
        return [
            f"LD_PRELOAD={found}",
            f"FAKETIME_TIMESTAMP_FILE={self._path}",
            "FAKETIME_CACHE_DURATION=1",  # seconds until a process has noticed
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            "FAKETIME_DISABLE_SHM=1",
            "FAKETIME_FORCE_MONOTONIC_FIX=0",  # with it, waits on the monotonic clock never end: Java does not start
        ]

    def wrap(self, command: list[str | Path]) -> list[str | Path]:
        """A server's command line, for one with this clock."""
        return ["/usr/bin/env", *self._settings(), *command]

    def jump(self, seconds: float) -> None:
        """Be so far ahead of the true time, in a second at the latest."""
        whole = self._path.with_suffix(".new")
        whole.write_text(f"{seconds:+.0f}\n")
        whole.replace(self._path)


def inject() -> None:
    """Let this process's time.time() be what its clock says, if it was given one."""
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    true_time, ahead, looked = time.time, 0.0, float("-inf")

    def jumping() -> float:
        nonlocal ahead, looked
        now = time.monotonic()
        if now > looked + LOOK:
            ahead, looked = float(Path(path).read_text()), now
        return true_time() + ahead

    time.time = jumping
