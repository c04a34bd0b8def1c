"""A backup's file: records one after the other, each with its length and checksum, and an end that says it is whole.

    14 bytes  b"zkms backup 1\\n"
    then for each record: length (4 bytes), crc32 (4 bytes), MessagePack
    header; delayed...; for each subscription: subscription, for each lane: lane, entry...; letter...; end

What is read is checked before any of it is believed: lengths, checksums, names, order, and that nothing is missing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from zlib import crc32

import msgspec

from zkms import frame as frames
from zkms.delayed import parse_delayed
from zkms.errors import CannotDecode, InvalidArgument, ZkmsError
from zkms.names import check_name, check_subscription, check_topic
from zkms.tree import LAYOUT, Part, Registration, carried, lanes_of, parse_entry

MAGIC = b"zkms backup 1\n"
_PREFIX = struct.Struct("!II")
LARGEST = 4 * 1024 * 1024
"""Bytes of a record: more than a znode can hold is damage."""


class BadBackup(ZkmsError):
    """A file that is no backup, or a damaged one; nothing was restored from it."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file} cannot be restored: {reason}")
        self.file = file
        self.reason = reason


class Header(msgspec.Struct, frozen=True, tag="header"):
    """Where it comes from."""

    layout: int
    root: str
    zkms: str
    at: float


class Subscribed(msgspec.Struct, frozen=True, tag="subscription"):
    """A durable subscription or a group; its lanes follow, all of them in order."""

    topic: str
    name: str
    registration: Registration


class LaneRecord(msgspec.Struct, frozen=True, tag="lane"):
    """A lane: what is done with of its entries, by their numbers; so many entries follow."""

    partition: int
    entries: int
    parts: dict[int, Part] = {}


class EntryRecord(msgspec.Struct, frozen=True, tag="entry"):
    """An entry of a lane: its number there, its name but for that, its data; bodies are in it, not pointed to."""

    sequence: int
    name: str
    data: bytes


class DelayedRecord(msgspec.Struct, frozen=True, tag="delayed"):
    """A frame that was not due yet."""

    bucket: int
    name: str
    data: bytes


class LetterRecord(msgspec.Struct, frozen=True, tag="letter"):
    """A dead letter, or something that was set aside."""

    shelf: str
    topic: str
    name: str
    data: bytes


class End(msgspec.Struct, frozen=True, tag="end"):
    """Nothing is missing if so many records came before."""

    records: int


Record = Header | Subscribed | LaneRecord | EntryRecord | DelayedRecord | LetterRecord | End
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


class Summary(msgspec.Struct):
    """What is in a backup."""

    file: str
    root: str
    at: float
    zkms: str
    subscriptions: int = 0
    messages: int = 0
    """That wait in queues, and are not acked."""
    delayed: int = 0
    """Messages that were not due yet."""
    letters: int = 0
    records: int = 0
    bytes: int = 0


class Writer:
    """Makes a file; it appears under its name when all of it is on disk."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.records = 0
        self._part = file.with_name(f"{file.name}.part")
        self._out: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            # Messages are in it: nobody else's to read.
            self._out = os.fdopen(os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")
        except OSError as error:
            raise InvalidArgument(f"{self._part} cannot be written: {error.strerror}") from error
        self._out.write(MAGIC)
        return self

    def put(self, record: Record) -> None:
        """The next one."""
        if self._out is None:
            raise InvalidArgument("use the writer in a with block")
        raw = _encoder.encode(record)
        self._out.write(_PREFIX.pack(len(raw), crc32(raw)) + raw)
        self.records += 1

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        out, self._out = self._out, None
        if out is None:
            return
        with out:
            out.flush()
            os.fsync(out.fileno())
        if kind is None:
            self._part.replace(self.file)
        else:
            self._part.unlink()


def records(file: Path) -> Iterator[Record]:
    """All of them, or `BadBackup` where one is damaged; that the end is reached is `examine`'s to see."""
    try:
        with file.open("rb") as source:
            if source.read(len(MAGIC)) != MAGIC:
                raise BadBackup(file, "it is no backup of zkms, or one of a newer version")
            while prefix := source.read(_PREFIX.size):
                at = source.tell() - len(prefix)
                if len(prefix) < _PREFIX.size:
                    raise BadBackup(file, f"it ends in the middle of a record, at byte {at:,}")
                length, checksum = _PREFIX.unpack(prefix)
                raw = source.read(length) if length <= LARGEST else b""
                if len(raw) != length or crc32(raw) != checksum:
                    raise BadBackup(file, f"the record at byte {at:,} is damaged or cut off")
                try:
                    yield _decoder.decode(raw)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise BadBackup(file, f"the record at byte {at:,} is malformed: {error}") from error
    except OSError as error:
        raise BadBackup(file, error.strerror or str(error)) from error


def examine(file: Path) -> tuple[Summary, set[tuple[str, int]]]:
    """Look at all of it: what is in it, and which delayed frames became due while it was made, so are in it twice."""
    found = records(file)
    header = next(found, None)
    if not isinstance(header, Header):
        raise BadBackup(file, "it has no header")
    if header.layout > LAYOUT:
        raise BadBackup(file, f"it was made of layout {header.layout}, this zkms knows {LAYOUT}: upgrade zkms")
    summary = Summary(str(file), header.root, header.at, header.zkms, records=1, bytes=file.stat().st_size)
    examiner = _Examiner(summary)
    for record in found:
        try:
            examiner.see(record)
        except (ValueError, CannotDecode) as error:
            raise BadBackup(file, f"record {summary.records + 1:,}: {error}") from error
        summary.records += 1
    if not examiner.ended:
        raise BadBackup(file, "it is cut off: its end is missing")
    return summary, examiner.twice


class _Examiner:
    """Sees to it that records come in order and make sense; `ValueError` if not."""

    def __init__(self, summary: Summary) -> None:
        self.ended = False
        self.twice: set[tuple[str, int]] = set()
        self._summary = summary
        self._delayed: set[tuple[str, int]] = set()
        self._lanes = self._whole = 0
        """That have still to come, and of how many."""
        self._lane: LaneRecord | None = None
        self._entries = 0
        self._last = -1

    def see(self, record: Record) -> None:
        """The next one."""
        if self.ended:
            raise ValueError("something comes after the end")
        if isinstance(record, EntryRecord):
            self._see_entry(record)
        elif self._entries:
            raise ValueError(f"{self._entries:,} entries are missing before it")
        elif isinstance(record, LaneRecord):
            self._see_lane(record)
        elif self._lanes:
            raise ValueError(f"{self._lanes:,} lanes are missing before it")
        elif isinstance(record, Subscribed):
            check_topic(record.topic)
            check_subscription("subscription", record.name)
            if record.registration.kind == "live":
                raise ValueError("a live subscription cannot be kept")
            self._summary.subscriptions += 1
            self._lanes = self._whole = len(lanes_of(record.name, record.registration))
        elif isinstance(record, DelayedRecord):
            item = parse_delayed(record.bucket, record.name)
            if item is None or record.bucket < 0 or "/" in record.name:
                raise ValueError(f"{record.name!r:.80} is no delayed message")
            self._delayed.add((item.producer, item.number))
            self._summary.delayed += item.messages
        elif isinstance(record, LetterRecord):
            for name in (record.shelf, record.topic):
                check_name("dead letter", name)
            if not record.name or "/" in record.name or record.name in (".", ".."):
                raise ValueError(f"{record.name!r:.80} is no dead letter")
            self._summary.letters += 1
        elif isinstance(record, End):
            if record.records != self._summary.records:
                raise ValueError(f"{record.records:,} records were written, {self._summary.records:,} are here")
            self.ended = True
        else:
            raise ValueError("a second header")

    def _see_lane(self, record: LaneRecord) -> None:
        if not self._lanes or record.partition != self._whole - self._lanes:
            raise ValueError(f"lane {record.partition} is out of place")
        self._lanes -= 1
        self._lane, self._entries, self._last = record, record.entries, -1

    def _see_entry(self, record: EntryRecord) -> None:
        if self._lane is None or not self._entries:
            raise ValueError("an entry that belongs to no lane")
        entry = parse_entry(f"{record.name}{record.sequence:010d}")
        if entry.foreign or entry.body is not None or record.sequence <= self._last:
            raise ValueError(f"{record.name!r:.80} is out of place")
        self._entries -= 1
        self._last = record.sequence
        if entry.gap:
            return
        part = self._lane.parts.get(record.sequence)
        self._summary.messages += entry.messages - (0 if part is None else part.count)
        if self._delayed:
            try:
                frame = frames.decode(carried(entry.name) if entry.carrier else record.data)
            except CannotDecode:
                return  # its reader sets it aside, as it would have done
            if (frame.producer, frame.seq) in self._delayed:
                self.twice.add((frame.producer, frame.seq))
