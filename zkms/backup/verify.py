"""Reads a whole backup before any of it is believed: checks names, order and sums, and that nothing is missing."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from zkms.backup.archive import (
    BadBackup,
    DeadLetterRecord,
    DelayedRecord,
    End,
    EntryRecord,
    Header,
    LateRecord,
    PartitionRecord,
    Record,
    Subscribed,
    records,
)
from zkms.errors import CannotDecode
from zkms.names import check_name, check_subscription, check_topic
from zkms.tree.delayed_names import parse_delayed
from zkms.tree.entry import parse_entry
from zkms.tree.paths import LAYOUT, queues_of
from zkms.tree.records import Part

LATEST = 253_402_300_000
"""Seconds since the epoch: the end of the year 9999, behind which no clock goes."""
BUCKETS = 10**12
"""Of delayed messages: their names have twelve digits."""
PartitionKey = tuple[str, str, int]
"""Topic, subscription, partition."""


class BackupSummary(msgspec.Struct):
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

    summary: BackupSummary
    late: dict[PartitionKey, list[LateRecord]]
    """What is to be put into partitions behind what is recorded with them."""
    digest: str
    """Tells this file from others."""


def examine(file: Path) -> Examined:
    """Read all of a backup and tell what is in it; `BadBackup` if it is not whole."""
    digest = blake2b(digest_size=16)
    found = records(file, digest)
    header = next(found, None)
    if not isinstance(header, Header):
        raise BadBackup(file, "it has no header")
    if header.layout > LAYOUT:
        raise BadBackup(file, f"it was made of layout {header.layout}, this zkms knows {LAYOUT}: upgrade zkms")
    if not 0 <= header.at < LATEST:
        raise BadBackup(file, f"it was made at no time that there is: {header.at}")
    summary = BackupSummary(str(file), header.root, header.at, header.zkms, records=1, bytes=file.stat().st_size)
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
    """Checks that records come in order and make sense; `ValueError` if not."""

    def __init__(self, summary: BackupSummary) -> None:
        self.ended = False
        self.late: dict[PartitionKey, list[LateRecord]] = {}
        self._summary = summary
        self._whose: Subscribed | None = None
        self._left = self._whole = 0
        """Partitions that have still to come, and of how many."""
        self._partition: PartitionRecord | None = None
        self._entries = 0
        self._parts: set[int] = set()
        """Entries of the partition of which something is known, and that have still to come."""
        self._last: dict[PartitionKey, int] = {}
        """The highest number in each partition."""

    def see(self, record: Record) -> None:
        """Check the next record."""
        if self.ended:
            raise ValueError("something comes after the end")
        if isinstance(record, EntryRecord):
            self._see_entry(record)
        elif self._entries:
            raise ValueError(f"{self._entries:,} entries are missing before it")
        elif self._parts:
            raise ValueError(f"entry {min(self._parts)} is missing before it, of which something is known")
        elif isinstance(record, PartitionRecord):
            self._see_partition(record)
        elif self._left:
            raise ValueError(f"{self._left:,} partitions are missing before it")
        elif isinstance(record, Subscribed):
            check_topic(record.topic)
            check_subscription("subscription", record.name)
            if record.registration.kind == "live":
                raise ValueError("a live subscription cannot be kept")
            if (record.topic, record.name, 0) in self._last:
                raise ValueError(f"{record.name!r:.80} of {record.topic!r:.80} is there twice")
            self._summary.subscriptions += 1
            self._whose = record
            self._left = self._whole = len(queues_of(record.name, record.registration))
        elif isinstance(record, LateRecord):
            self._see_late(record)
        elif isinstance(record, DelayedRecord):
            item = parse_delayed(record.bucket, record.name)
            if item is None or not 0 <= record.bucket < BUCKETS or "/" in record.name:
                raise ValueError(f"{record.name!r:.80} is no delayed message")
            self._summary.delayed += item.messages
        elif isinstance(record, DeadLetterRecord):
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

    def _see_partition(self, record: PartitionRecord) -> None:
        if self._whose is None or not self._left or record.number != self._whole - self._left:
            raise ValueError(f"partition {record.number} is out of place")
        self._left -= 1
        self._partition, self._entries, self._parts = record, record.entries, {*record.parts}
        self._last[self._whose.topic, self._whose.name, record.number] = -1

    def _see_entry(self, record: EntryRecord) -> None:
        if self._whose is None or self._partition is None or not self._entries:
            raise ValueError("an entry that belongs to no partition")
        partition = self._whose.topic, self._whose.name, self._partition.number
        self._count(partition, record, self._partition.parts.get(record.sequence))
        self._entries -= 1
        self._parts.discard(record.sequence)

    def _see_late(self, record: LateRecord) -> None:
        partition = record.topic, record.subscription, record.partition
        if partition not in self._last:
            raise ValueError("a late entry that belongs to no partition")
        self._count(partition, record, record.part)
        self.late.setdefault(partition, []).append(record)

    def _count(self, partition: PartitionKey, record: EntryRecord | LateRecord, part: Part | None) -> None:
        entry = parse_entry(f"{record.name}{record.sequence:010d}")
        if entry.foreign or entry.body is not None or record.sequence <= self._last[partition]:
            raise ValueError(f"{record.name!r:.80} is out of place")
        self._last[partition] = record.sequence
        if not entry.gap:
            self._summary.messages += entry.messages - (0 if part is None else part.count)
