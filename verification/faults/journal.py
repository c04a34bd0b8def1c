"""The journal of a process in a trial: one JSON line for each record, so that nothing is lost when it is killed.

    ["ready", SECONDS]                          a consumer's subscribe() has returned
    ["begun", WHO, NUMBER, SECONDS]             a publish() is called
    ["stored", WHO, NUMBER, SECONDS, DUE]       it has returned; DUE is for delayed messages, else null
    ["unknown", WHO, NUMBER, SECONDS, WHY]      it raised, and may have been stored
    ["refused", WHO, NUMBER, SECONDS, WHY]      it raised, and said that nothing was stored
    ["got", WHO, NUMBER, SECONDS, WALL]         a message was delivered to a consumer; WALL is the wall clock's time
    ["acked", WHO, NUMBER, SECONDS]             its ack() has returned
    ["lost", WHO, NUMBER, SECONDS, WHY]         its ack() raised
    ["gap", SECONDS, REASON]                    a subscriber was told that it may have missed something
    ["write", WHO, SECONDS]                     a bare kazoo client has written

SECONDS are the machine's monotonic clock: those of all processes compare.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

Record = list[Any]


class Journal:
    """Appends records to a file; each is with the kernel when `note` returns."""

    def __init__(self, path: Path) -> None:
        """Open the file, or go on with it."""
        self._file = path.open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def note(self, *records: Record) -> None:
        """Write records, in one go."""
        self._file.write(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def now() -> float:
    """Seconds of the clock that all processes of the machine share."""
    return time.monotonic()


class Tail:
    """Reads a journal that is still being written."""

    def __init__(self, path: Path) -> None:
        """Begin at the file's start; it need not be there yet."""
        self._path = path
        self._read = 0
        self.records: list[Record] = []
        """All that were read so far."""

    def look(self) -> list[Record]:
        """Read what is new, and return all; the last line of a process that was killed may not be whole."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(end)
            self.records += [msgspec.json.decode(line, type=Record) for line in whole.splitlines()]
        return self.records
