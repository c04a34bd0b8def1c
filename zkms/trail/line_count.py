"""A recorder's line count: how many lines it was given, in a file that outlives kill -9, and whether it still runs.

The file NODE-STARTED.count holds the number of lines and the time of the last one. It is mapped into memory, so that
counting costs no system call and what was counted is there after any end of the process. The recorder holds a lock on
it for as long as it lives.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".count"
_COUNT = struct.Struct("=Qd")
_NUMBER = struct.Struct("=Q")
"""All that there was before the time stood with it."""


class Given(NamedTuple):
    """What a recorder was given: so many lines, the last one at this time, if that is known."""

    lines: int
    last: float | None = None


class LineCount:
    """The recorder's side."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.ftruncate(self._descriptor, _COUNT.size)
        self._map = mmap.mmap(self._descriptor, _COUNT.size)
        self._numbers = memoryview(self._map)[: _NUMBER.size].cast("Q")
        self._times = memoryview(self._map)[_NUMBER.size :].cast("d")

    def set(self, count: int, when: float) -> None:
        """So many lines were given to the recorder so far, the last one at this time."""
        self._numbers[0] = count
        self._times[0] = when

    def close(self) -> None:
        """All is written: nothing has to be remembered."""
        self._numbers.release()
        self._times.release()
        self._map.close()
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def is_alive(path: Path) -> bool:
    """Whether the recorder with this line count runs; where there is no such file it does not."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def pack(count: int, when: float) -> bytes:
    """What is in the line count of a recorder that was given so many lines, the last one at this time."""
    return _COUNT.pack(count, when)


def read(path: Path) -> Given | None:
    """What its recorder was given; None if nobody knows any more."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    if len(raw) == _NUMBER.size:
        return Given(*_NUMBER.unpack(raw))
    return Given(*_COUNT.unpack(raw)) if len(raw) == _COUNT.size else None
