"""A backup's file: records one after the other, each with its length and checksum, and an end that says it is whole.

    14 bytes  b"zkms backup 1\\n"
    then for each record: length (4 bytes), crc32 (4 bytes), MessagePack
    header; letter...; for each subscription: subscription, for each lane: lane, entry...;
    delayed...; late...; letter...; end

What is read is checked before any of it is believed: lengths, checksums, names, order, and that nothing is missing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self
from zlib import crc32

import msgspec

from zkms.delayed import parse_delayed
from zkms.errors import CannotDecode, InvalidArgument, ZkmsError
from zkms.names import check_name, check_subscription, check_topic
from zkms.tree import LAYOUT, Part, Registration, lanes_of, parse_entry

MAGIC = b"zkms backup 1\n"
_PREFIX = struct.Struct("!II")
LARGEST = 4 * 1024 * 1024
"""Bytes of a record: more than a znode can hold is damage."""
LATEST = 253_402_300_000
"""Seconds since the epoch: the end of the year 9999, behind which no clock goes."""
BUCKETS = 10**12
"""Of delayed messages: their names have twelve digits."""


class BadBackup(ZkmsError):
    """A file that is no backup, or a damaged one; nothing was restored from it."""

    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"{file} cannot be restored: {reason}")
        self.file = file
        self.reason = reason


class CannotWrite(ZkmsError):
    """The disk is full, or the file too large for a limit; nothing is left of it."""

    def __init__(self, file: Path, error: OSError) -> None:
        super().__init__(f"{file} cannot be written: {error.strerror or error}; nothing was backed up")
        self.file = file


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


class LateRecord(msgspec.Struct, frozen=True, tag="late"):
    """An entry that was due, and so put into a lane, after the lane was read: it comes behind the lane's others."""

    topic: str
    subscription: str
    partition: int
    sequence: int
    name: str
    data: bytes
    part: Part | None = None


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
    unreadable: int = 0
    """Znodes that whoever made the backup was not allowed to read."""
    such_as: tuple[str, ...] = ()


Record = Header | Subscribed | LaneRecord | EntryRecord | LateRecord | DelayedRecord | LetterRecord | End
Lane = tuple[str, str, int]
"""Topic, subscription, partition."""
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
    unreadable: int = 0
    """Znodes that are missing in it, because whoever made it was not allowed to read them."""
    such_as: tuple[str, ...] = ()
    """The first of these."""


class Examined(NamedTuple):
    """A backup that is whole."""

    summary: Summary
    late: dict[Lane, list[LateRecord]]
    """What is to be put into lanes behind what is recorded with them."""
    digest: str
    """Tells this file from others."""


class Writer:
    """Makes a file; it appears under its name when all of it is on disk."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.records = 0
        self._part = file.with_name(f"{file.name}.part")
        self._out: IO[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._part.unlink(missing_ok=True)
            # Messages are in it: nobody else's to read, and written nowhere but here.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            self._out = os.fdopen(os.open(self._part, flags, 0o600), "wb")
        except OSError as error:
            raise InvalidArgument(f"{self._part} cannot be written: {error.strerror}") from error
        self._out.write(MAGIC)
        return self

    def put(self, record: Record) -> None:
        """The next one."""
        if self._out is None:
            raise InvalidArgument("use the writer in a with block")
        raw = _encoder.encode(record)
        try:
            self._out.write(_PREFIX.pack(len(raw), crc32(raw)) + raw)
        except OSError as error:
            raise CannotWrite(self.file, error) from error
        self.records += 1

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        out, self._out = self._out, None
        if out is None:
            return
        try:
            if kind is None:
                out.flush()
                os.fsync(out.fileno())
                self._part.replace(self.file)
                _sync(self.file.parent)
        except OSError as error:
            raise CannotWrite(self.file, error) from error
        finally:
            with suppress(OSError):  # what is left in its buffer has no room either
                out.close()
            self._part.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    """A name is on disk when its directory is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def records(file: Path, digest: blake2b | None = None) -> Iterator[Record]:
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
                if digest is not None:
                    digest.update(prefix + raw)
                try:
                    yield _decoder.decode(raw)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    raise BadBackup(file, f"the record at byte {at:,} is malformed: {error}") from error
    except OSError as error:
        raise BadBackup(file, error.strerror or str(error)) from error


def examine(file: Path) -> Examined:
    """Look at all of it: what is in it, or `BadBackup`."""
    digest = blake2b(digest_size=16)
    found = records(file, digest)
    header = next(found, None)
    if not isinstance(header, Header):
        raise BadBackup(file, "it has no header")
    if header.layout > LAYOUT:
        raise BadBackup(file, f"it was made of layout {header.layout}, this zkms knows {LAYOUT}: upgrade zkms")
    if not 0 <= header.at < LATEST:
        raise BadBackup(file, f"it was made at no time that there is: {header.at}")
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
    return Examined(summary, examiner.late, digest.hexdigest())


class _Examiner:
    """Sees to it that records come in order and make sense; `ValueError` if not."""

    def __init__(self, summary: Summary) -> None:
        self.ended = False
        self.late: dict[Lane, list[LateRecord]] = {}
        self._summary = summary
        self._whose: Subscribed | None = None
        self._lanes = self._whole = 0
        """That have still to come, and of how many."""
        self._lane: LaneRecord | None = None
        self._entries = 0
        self._parts: set[int] = set()
        """Entries of the lane of which something is known, and that have still to come."""
        self._last: dict[Lane, int] = {}
        """The highest number in each lane."""

    def see(self, record: Record) -> None:
        """The next one."""
        if self.ended:
            raise ValueError("something comes after the end")
        if isinstance(record, EntryRecord):
            self._see_entry(record)
        elif self._entries:
            raise ValueError(f"{self._entries:,} entries are missing before it")
        elif self._parts:
            raise ValueError(f"entry {min(self._parts)} is missing before it, of which something is known")
        elif isinstance(record, LaneRecord):
            self._see_lane(record)
        elif self._lanes:
            raise ValueError(f"{self._lanes:,} lanes are missing before it")
        elif isinstance(record, Subscribed):
            check_topic(record.topic)
            check_subscription("subscription", record.name)
            if record.registration.kind == "live":
                raise ValueError("a live subscription cannot be kept")
            if (record.topic, record.name, 0) in self._last:
                raise ValueError(f"{record.name!r:.80} of {record.topic!r:.80} is there twice")
            self._summary.subscriptions += 1
            self._whose = record
            self._lanes = self._whole = len(lanes_of(record.name, record.registration))
        elif isinstance(record, LateRecord):
            self._see_late(record)
        elif isinstance(record, DelayedRecord):
            item = parse_delayed(record.bucket, record.name)
            if item is None or not 0 <= record.bucket < BUCKETS or "/" in record.name:
                raise ValueError(f"{record.name!r:.80} is no delayed message")
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
            self._summary.unreadable, self._summary.such_as = record.unreadable, record.such_as
            self.ended = True
        else:
            raise ValueError("a second header")

    def _see_lane(self, record: LaneRecord) -> None:
        if self._whose is None or not self._lanes or record.partition != self._whole - self._lanes:
            raise ValueError(f"lane {record.partition} is out of place")
        self._lanes -= 1
        self._lane, self._entries, self._parts = record, record.entries, {*record.parts}
        self._last[self._whose.topic, self._whose.name, record.partition] = -1

    def _see_entry(self, record: EntryRecord) -> None:
        if self._whose is None or self._lane is None or not self._entries:
            raise ValueError("an entry that belongs to no lane")
        lane = self._whose.topic, self._whose.name, self._lane.partition
        self._count(lane, record, self._lane.parts.get(record.sequence))
        self._entries -= 1
        self._parts.discard(record.sequence)

    def _see_late(self, record: LateRecord) -> None:
        lane = record.topic, record.subscription, record.partition
        if lane not in self._last:
            raise ValueError("a late entry that belongs to no lane")
        self._count(lane, record, record.part)
        self.late.setdefault(lane, []).append(record)

    def _count(self, lane: Lane, record: EntryRecord | LateRecord, part: Part | None) -> None:
        entry = parse_entry(f"{record.name}{record.sequence:010d}")
        if entry.foreign or entry.body is not None or record.sequence <= self._last[lane]:
            raise ValueError(f"{record.name!r:.80} is out of place")
        self._last[lane] = record.sequence
        if not entry.gap:
            self._summary.messages += entry.messages - (0 if part is None else part.count)
