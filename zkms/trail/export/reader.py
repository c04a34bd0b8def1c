"""Reads a trail's file, of this version or an older one, and keeps what is good of a damaged one.

Version 0, of the first experiments, had a line a message, `id` PRODUCER:SEQ in place of `producer`, `seq` and `n`,
`time` in place of `t`, and neither a count of lines nor a last line. It began with {"v": 0, "node", "pid", "time"}.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from zkms.errors import ZkmsError
from zkms.trail.event import EVENTS, FROM_OPENED, VERSION, Event
from zkms.trail.store import stem_of

MAX_LINE = 64 * 1024 * 1024
LAST_SECOND = 253_402_300_800.0
"""The first one of the year 10000, which no calendar here has."""
_KNOWN = frozenset(EVENTS)
_NO_EVENT = (msgspec.MsgspecError, ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""What decoding a line can raise that is none."""
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)
_RUN = re.compile(r"[\w.-]{1,100}", re.ASCII)
"""A run's name becomes part of a file's name where trails are exported to."""
_decode = msgspec.json.Decoder(Event).decode
_decode_any = msgspec.json.Decoder(dict[str, Any]).decode


class NewerTrail(ZkmsError):
    """A file of a later version than this zkms reads."""

    def __init__(self, path: Path, version: object) -> None:
        super().__init__(
            f"{path} is a trail of version {version}, this zkms reads up to {VERSION}: update zkms; it is left alone"
        )
        self.path = path
        self.version = version


class Bad(msgspec.Struct, frozen=True):
    """A line that is no event."""

    number: int
    raw: bytes
    reason: str


class TrailFile:
    """One file. Iterating gives its events and its bad lines in order, once; the first line is in `opened`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = stem_of(path)
        self.lines = 0
        """Lines read so far, good or bad."""
        self.closed = False
        """Whether the last line was found, so that nothing is missing at the end."""
        self._upgrade = False
        self._first: Bad | None = None
        with path.open("rb") as file:
            self.opened = self._open(file.readline(MAX_LINE))

    def _open(self, line: bytes) -> Event:
        try:
            fields = _decode_any(line)
            version = fields.get("v")
            if isinstance(version, int) and version > VERSION:
                raise NewerTrail(self.path, version)
            self._upgrade = version == 0
            if self._upgrade:
                return _first_of_0(fields, self.source)
            event = _decode(line)
            named = event.node and _RUN.fullmatch(event.run or "")
            if event.event == "opened" and version == VERSION and named and is_time(event.t):
                return event
            reason = "not the first line of a trail"
        except _NO_EVENT as error:
            reason = f"not the first line of a trail: {error}" if line else "an empty file"
        self._first = Bad(1, line, reason)
        return Event(event="opened", t=self.path.stat().st_mtime, **_from_name(self.source))

    def __iter__(self) -> Iterator[Event | Bad]:
        self.lines = 0
        with self.path.open("rb") as file:
            while line := file.readline(MAX_LINE):
                self.lines += 1
                if self.lines == 1:
                    if self._first is not None:
                        yield self._first
                    yield self.opened
                    continue
                event = self._event(line)
                if isinstance(event, Event):
                    self.closed = event.event == "closed"
                yield event
        if self.lines == 0 and self._first is not None:
            yield self._first
            yield self.opened

    def _event(self, line: bytes) -> Event | Bad:
        if not line.endswith(b"\n"):
            return Bad(self.lines, line, "cut off in the middle of the line")
        try:
            event = _event_of_0(_decode_any(line), self.lines) if self._upgrade else _decode(line)
        except _NO_EVENT as error:
            return Bad(self.lines, line, f"no event of version {0 if self._upgrade else VERSION}: {error}")
        if event.v is not None and event.v != VERSION:
            return Bad(self.lines, line, f"a line of version {event.v}")
        if event.event not in _KNOWN or event.event == "opened":
            return Bad(self.lines, line, f"{event.event!r:.40} is nothing that happens in version {VERSION}")
        if not is_time(event.t):
            return Bad(self.lines, line, f"{event.t!r} is no time")
        return event

    def origin(self) -> tuple[Any, ...]:
        """What `opened` says for all lines, in the order of FROM_OPENED."""
        return tuple(getattr(self.opened, name) for name in FROM_OPENED)


def is_time(seconds: float) -> bool:
    """Whether a calendar has it."""
    return math.isfinite(seconds) and 0 <= seconds < LAST_SECOND


def _from_name(source: str) -> dict[str, Any]:
    """Whose a file is, if its first line does not say."""
    rest, _, number = source.rpartition("-")
    node = rest.rpartition("-")[0] or source
    return {"node": node, "run": f"unknown-{rest}", "file": int(number) if _NUMBER.fullmatch(number) else 0}


def _first_of_0(fields: dict[str, Any], source: str) -> Event:
    known = {"node": fields["node"], "pid": fields.get("pid"), "started": fields["time"]}
    whole = {"event": "opened", "t": fields["time"], "v": 0, **_from_name(source), **known}
    event = msgspec.convert(whole, Event)
    if not is_time(event.t):
        raise ValueError(f"{event.t!r} is no time")
    return event


def _event_of_0(fields: dict[str, Any], number: int) -> Event:
    fields["t"] = fields.pop("time", None)
    fields["i"] = number - 1
    if isinstance(identity := fields.pop("id", None), str):
        producer, colon, seq = identity.rpartition(":")
        if not colon or not _NUMBER.fullmatch(seq):
            raise ValueError(f"{identity!r} is no id of a message")
        fields |= {"producer": producer, "seq": int(seq), "n": 1}
    return msgspec.convert(fields, Event)
