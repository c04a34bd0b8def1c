"""The files of one recorder: opened, filled, finished by an atomic rename, and kept within a bound. One thread only.

    NODE-STARTED-NUMBER.jsonl.open   being written
    NODE-STARTED-NUMBER.jsonl        finished
    NODE-STARTED.count               the recorder's line count

The next file is opened before the last one is finished, so there is always one without its `closed` line while the
process lives: after a kill that one tells that lines may be missing.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from zkms.config import Trail
from zkms.errors import InvalidArgument
from zkms.trail import line_count
from zkms.trail.event import OPEN_SUFFIX, SUFFIX, VERSION, Event

log = logging.getLogger("zkms.trail")
TAIL = 4096
"""Bytes at a file's end that hold its last line."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]")
_encode = msgspec.json.Encoder().encode
encode_lines = msgspec.json.Encoder().encode_lines
"""Events as lines."""


class Store:
    """Where a recorder's lines go."""

    def __init__(self, trail: Trail, node: str) -> None:
        self._trail = trail
        self._node = node
        self._run = secrets.token_hex(6)
        self._started = time.time()
        moment = datetime.fromtimestamp(self._started, UTC).strftime("%Y%m%dT%H%M%S%f")
        self._stem = f"{_UNSAFE.sub('_', node)[:100]}-{moment}"
        if self._stem.startswith("."):
            self._stem = f"_{self._stem}"
        self.removed = 0
        """Files of the directory that we have removed."""
        self._number = 0
        try:
            trail.path.mkdir(parents=True, exist_ok=True)
            self.line_count = line_count.LineCount(self._new_line_count())
            self._open(lost=0)
        except OSError as error:
            raise InvalidArgument(f"trail: cannot write to {str(trail.path)!r}: {error.strerror or error}") from error

    def _new_line_count(self) -> Path:
        """Of a name that nobody has taken: another process may have our node's name, and have started just now."""
        while (path := self._trail.path / f"{self._stem}{line_count.SUFFIX}").exists():
            self._stem += secrets.token_hex(1)
        return path

    @property
    def age(self) -> float:
        """Seconds since it was opened, 0 if there is nothing in it."""
        return time.monotonic() - self._opened if self._lines > 1 else 0.0

    @property
    def full(self) -> bool:
        """Whether it is time for the next one."""
        return self._size >= self._trail.file_bytes or self.age >= self._trail.file_seconds

    def write(self, lines: bytes, count: int) -> None:
        """Append; raises OSError with nothing appended."""
        try:
            self._write(lines)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
                os.lseek(self._descriptor, self._size, os.SEEK_SET)
            raise
        self._size += len(lines)
        self._lines += count

    def _write(self, lines: bytes) -> None:
        view = memoryview(lines)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def turn(self, lost: int) -> list[Event]:
        """Begin the next file and finish this one; returns what to tell of files that had to go."""
        descriptor, path, count = self._descriptor, self.path, self._lines
        self._open(lost)
        _finish(descriptor, path, count, lost)
        return list(self._make_room())

    def close(self, lost: int) -> None:
        """Finish the last file."""
        try:
            _finish(self._descriptor, self.path, self._lines, lost)
        except OSError as error:
            log.warning("the trail's last file could not be finished: %s", error)
            return  # the line count stays, so that what is missing is known
        self.line_count.close()

    def _open(self, lost: int) -> None:
        self._number += 1
        path = self._trail.path / f"{self._stem}-{self._number:06d}{SUFFIX}{OPEN_SUFFIX}"
        first = Event(
            event="opened",
            t=time.time(),
            m=time.monotonic(),
            v=VERSION,
            node=self._node,
            host=socket.gethostname(),
            pid=os.getpid(),
            run=self._run,
            started=self._started,
            file=self._number,
            flush=self._trail.flush,
            lost=lost,
            removed=self.removed,
        )
        line = _encode(first) + b"\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.write(descriptor, line)
        except OSError:  # a full disk: the old file goes on
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        self._descriptor, self.path, self._opened = descriptor, path, time.monotonic()
        self._lines, self._size = 1, len(line)

    # -- bounds --------------------------------------------------------------------------------------------------

    def _make_room(self) -> Iterable[Event]:
        """Remove the oldest finished files, whosever they are, until the rest is within the bound."""
        files = sorted(_sizes(self._trail.path), key=lambda found: found[0])
        total = sum(size for _, size, _ in files)
        for changed, size, path in files:
            if total <= self._trail.total_bytes:
                return
            if path.name.endswith(OPEN_SUFFIX) and is_open(path):
                continue
            lines, since = _extent(path)
            try:
                path.unlink()
            except OSError as error:
                log.debug("%s is not removed: %s", path, error)  # by another process, most likely
                continue
            total -= size
            self.removed += 1
            log.warning("trail: %s was removed, as the directory is past its %d bytes", path, self._trail.total_bytes)
            yield Event(
                event="lost",
                t=changed,
                at=since,
                n=lines,
                of=stem_of(path),
                reason=f"removed to keep the directory below {self._trail.total_bytes} bytes",
            )


def stem_of(path: Path) -> str:
    """NODE-STARTED-NUMBER."""
    return path.name.removesuffix(OPEN_SUFFIX).removesuffix(SUFFIX)


def line_count_of(path: Path) -> Path:
    """The line count of the recorder that wrote a file."""
    return path.with_name(stem_of(path).rpartition("-")[0] + line_count.SUFFIX)


def is_open(path: Path) -> bool:
    """Whether somebody still writes to this file."""
    return path.name.endswith(OPEN_SUFFIX) and line_count.is_alive(line_count_of(path))


def _finish(descriptor: int, path: Path, lines: int, lost: int) -> None:
    last = Event(event="closed", t=time.time(), m=time.monotonic(), lines=lines + 1, lost=lost)
    try:
        os.write(descriptor, _encode(last) + b"\n")
    finally:
        os.close(descriptor)
    path.rename(path.with_name(path.name.removesuffix(OPEN_SUFFIX)))


def _sizes(directory: Path) -> Iterable[tuple[float, int, Path]]:
    for path in directory.iterdir():
        if path.name.endswith((SUFFIX, SUFFIX + OPEN_SUFFIX)):
            with suppress(OSError):
                stat = path.stat()
                yield stat.st_mtime, stat.st_size, path


def _extent(path: Path) -> tuple[int, float]:
    """How many lines a file has, and since when, as far as it says."""
    try:
        with path.open("rb") as file:
            first = msgspec.json.decode(file.readline(), type=Event)
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            last = msgspec.json.decode(file.read().splitlines()[-1], type=Event)
        return last.lines or 0, first.t
    except (OSError, IndexError, msgspec.MsgspecError):
        return 0, path.stat().st_mtime if path.exists() else 0.0
