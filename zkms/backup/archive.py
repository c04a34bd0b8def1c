"""The file of a backup: records one after the other, each with its length and checksum, and an end that shows it whole.

    14 bytes  b"zkms backup 1\\n"
    then for each record: length (4 bytes), crc32 (4 bytes), MessagePack
    header; letter...; for each subscription: subscription, for each partition: lane, entry...;
    delayed...; late...; letter...; end

Reading checks lengths and checksums; `verify` checks that the records make sense and that none is missing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from zlib import crc32

import msgspec

from zkms.errors import InvalidArgument, ZkmsError
from zkms.tree.records import Part, Registration

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


class CannotWrite(ZkmsError):
    """The disk is full, or the file too large for a limit; nothing is left of it."""

    def __init__(self, file: Path, error: OSError) -> None:
        super().__init__(f"{file} cannot be written: {error.strerror or error}; nothing was backed up")
        self.file = file


class Header(msgspec.Struct, frozen=True, tag="header"):
    """Where a backup comes from."""

    layout: int
    root: str
    zkms: str
    at: float


class Subscribed(msgspec.Struct, frozen=True, tag="subscription"):
    """A durable subscription or a group; its partitions follow, all of them in order."""

    topic: str
    name: str
    registration: Registration


class PartitionRecord(msgspec.Struct, frozen=True, tag="lane"):
    """A partition, and how far its entries are acked, by their numbers; so many entries follow."""

    number: int = msgspec.field(name="partition")
    entries: int
    parts: dict[int, Part] = {}


class EntryRecord(msgspec.Struct, frozen=True, tag="entry"):
    """An entry of a partition: its number there, its name without that, its data. A body is in it, not pointed to."""

    sequence: int
    name: str
    data: bytes


class LateRecord(msgspec.Struct, frozen=True, tag="late"):
    """An entry that became due after its partition was read: it comes behind the others of the partition."""

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


class DeadLetterRecord(msgspec.Struct, frozen=True, tag="letter"):
    """A dead letter, or something that was set aside."""

    shelf: str
    topic: str
    name: str
    data: bytes


class End(msgspec.Struct, frozen=True, tag="end"):
    """The last record: nothing is missing if so many records came before."""

    records: int
    unreadable: int = 0
    """Znodes that whoever made the backup was not allowed to read."""
    such_as: tuple[str, ...] = ()


Record = Header | Subscribed | PartitionRecord | EntryRecord | LateRecord | DelayedRecord | DeadLetterRecord | End
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


class Writer:
    """Writes a backup; the file appears under its name when all of it is on disk."""

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
        """Write the next record."""
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
    """All records, or `BadBackup` where one is damaged; whether the last one is an `End` is not checked here."""
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
