"""Fuzzes trails: any file becomes events and bad lines, and every event fits into the tables."""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path, PosixPath
from typing import Any
from zlib import crc32

import msgspec

from verification.fuzz.target import Target
from zkms.trail.event import Event
from zkms.trail.export.columns import table
from zkms.trail.export.export import _as_row
from zkms.trail.export.reader import LAST_SECOND, Bad, NewerTrail, TrailFile

OPENED = b'{"event":"opened","t":1.5,"v":1,"node":"n","host":"h","pid":7,"run":"r","started":1.0,"file":1}\n'
PUBLISHED = (
    b'{"event":"published","i":1,"t":2.0,"m":1.0,"topic":"users","producer":"p","seq":7,"n":2,"places":[0,2],'
    b'"ids":["a",null],"keys":[5,0],"subs":["s"],"at":1.5,"size":10,"zxid":4294967297}\n'
)
ACKED = (
    b'{"event":"acked","i":2,"t":2.5,"sub":"s","topic":"users","kind":"group","producer":"p","seq":7,"n":1,'
    b'"partition":3}\n'
)
FIRST_0 = b'{"v":0,"node":"n","pid":7,"time":1.5}\n'
LINE_0 = b'{"event":"acked","time":2.0,"id":"p:7","sub":"s","topic":"users"}\n'
DIRECTORY = Path(tempfile.mkdtemp(prefix="zkms-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
FILE = DIRECTORY / f"node-{os.getpid()}-1.jsonl"
FILE.touch()


class InMemory(PosixPath):
    """A file's name whose content is not read from a disk: opening files took most of the time."""

    content = b""

    def open(self, *_args: Any, **_options: Any) -> Any:
        """The content, from its beginning."""
        return io.BytesIO(self.content)


IN_MEMORY = InMemory(FILE)


def check(data: bytes) -> None:
    """By itself, and as the lines of a file that begins as it should, of either version."""
    for first in (b"", OPENED, FIRST_0):
        _read(first + data)


def _read(data: bytes) -> None:
    thorough = crc32(data) % 64 == 0
    if thorough:
        FILE.write_bytes(data)
    IN_MEMORY.content = data
    try:
        file = TrailFile(FILE if thorough else IN_MEMORY)
    except NewerTrail:
        return
    found = list(file)
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    assert file.lines == lines
    events = [each for each in found if isinstance(each, Event)]
    bad = [each for each in found if isinstance(each, Bad)]
    assert len(events) + len(bad) in (lines, lines + 1, lines + 2)  # of a bad first line, an event is made up
    for event in events:
        assert 0 <= event.t < LAST_SECOND
        assert all(-(2**63) <= number < 2**63 for number in (event.seq or 0, event.i, event.n or 0, event.zxid or 0))
    if thorough:  # slow, and the same for all events that pass as such
        origin = (file.source, *file.origin())
        rows = [_as_row(origin + msgspec.structs.astuple(event)) for event in events]
        assert table(rows).num_rows == len(events)


TARGETS = (
    Target(
        "trail lines",
        check,
        (OPENED + PUBLISHED + ACKED, PUBLISHED, ACKED, FIRST_0 + LINE_0, LINE_0, OPENED, FIRST_0),
        (
            *tuple(f'"{name}":'.encode() for name in Event.__struct_fields__),
            b"[" * 1500,
            b"\\ud800",
            b'"v":0',
            b'"v":9',
            b"\n",
            b"9223372036854775808",
            b"\xff",
            b'"time":[]',
        ),
    ),
)
