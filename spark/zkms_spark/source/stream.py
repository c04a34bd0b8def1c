"""A topic as a stream of rows: a durable subscription whose place is the query's checkpoint.

An offset is a place in the subscription's queue (zkms/replay/cursor.py). Spark writes down a batch's offsets before
it begins; done again after a crash, the batch has the same rows, whatever was published since. What Spark has committed
is acked in ZooKeeper, and nothing before.

The driver's Python process plans and acks; tasks read the entries themselves, each with a session of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from zkms import Bus, ConnectionLost, InvalidArgument
from zkms.replay.cursor import Cursor, CursorPlace
from zkms.replay.slices import Piece
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session
from zkms_spark.source.messages import Row, rows
from zkms_spark.source.options import Options

log = logging.getLogger("zkms.spark")
T = TypeVar("T")
Offset = dict[str, Any]
WAIT = 0.1
"""Seconds that Spark waits for news at a time: it asks a hundred times a second otherwise."""


@dataclass
class SliceBatch(InputPartition):
    """What one task reads."""

    pieces: Sequence[tuple[Any, ...]]
    at: int

    def __init__(self, pieces: Sequence[Piece], at: int) -> None:
        self.pieces = [tuple(piece) for piece in pieces]
        self.at = at


class ZkmsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a durable subscription. Made on the driver and for tasks alike: only what the driver calls connects."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.topic, self.name = check_stream(options)
        self._bus: Bus | None = None
        self._cursor: Cursor | None = None
        self._until: CursorPlace | None = None

    # -- on the driver -------------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names, here and below
        """Where a query begins that has no checkpoint: before the first message that nobody has acked."""
        return _offset(self._patiently(lambda cursor: cursor.begin()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a batch has at the most."""
        return ReadMaxRows(self.options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and no more."""
        self._until = self._patiently(lambda cursor: cursor.end())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Where the next batch ends.

        Spark asks when it has committed all before `start`, and calls `commit` only when there is a next batch: until
        then the last one would wait in the queue, and count as lag.
        """
        begin = _place(start)
        self._patiently(lambda cursor: cursor.ack(begin))
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        wait = WAIT if self._until is None else 0.0
        end = self._patiently(lambda cursor: cursor.advance(begin, most, self._until, wait))
        if end is not begin:
            return _offset(end)
        if self._until is not None:  # the query ends now, and Spark kills this process: better in an orderly way
            self.stop()
        return start

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """For those who watch how far a query is behind."""
        return None if self._cursor is None else _offset(self._patiently(lambda cursor: cursor.end()))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """What the tasks of a batch read: neighbours together, so that one task has its rows in order."""
        begin, finish = _place(start), _place(end)
        pieces = self._patiently(lambda cursor: cursor.pieces(begin, finish))
        total = sum(piece.last - piece.first for piece in pieces)
        share = max(1, -(-total // self.options.partitions))
        shares: list[list[Piece]] = []
        count = share
        for piece in pieces:
            if count >= share:
                shares.append([])
                count = 0
            shares[-1].append(piece)
            count += piece.last - piece.first
        return [SliceBatch(each, finish.at) for each in shares]

    def commit(self, end: Offset) -> None:
        """Spark has written down that it is done with all before this: now it may be acked."""
        place = _place(end)
        self._patiently(lambda cursor: cursor.ack(place))

    def stop(self) -> None:
        """The query has ended: the next one need not wait."""
        cursor, bus, self._cursor, self._bus = self._cursor, self._bus, None, None
        try:
            if cursor is not None:
                cursor.close()
        finally:
            if bus is not None:
                bus.close()

    def _patiently(self, step: Callable[[Cursor], T]) -> T:
        """Do it, and again while ZooKeeper is away, for as long as the option `timeout` says."""
        deadline = time.monotonic() + self.options.timeout
        while True:
            try:
                return step(self._opened())
            except ConnectionLost as error:
                if time.monotonic() >= deadline:
                    raise
                log.warning("the stream goes on when ZooKeeper is back: %s", error)

    def _opened(self) -> Cursor:
        if self._cursor is None:
            bus = self.options.connect()
            cursor = Cursor(bus.parts, self.topic, self.name, strict=self.options.strict, timeout=self.options.timeout)
            try:
                cursor.open(takeover=self.options.takeover, patience=self.options.timeout)
            except BaseException:
                bus.close()
                raise
            self._bus, self._cursor = bus, cursor
        return self._cursor

    # -- in a task -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """The rows of one part of a batch."""
        assert isinstance(partition, SliceBatch)  # noqa: S101 - our own, as `partitions` made it
        session = Session(self.options.config())
        session.start()
        try:
            pieces = [Piece(*piece) for piece in partition.pieces]
            yield from rows(
                session, Tree(self.options.root), self.topic, pieces, partition.at, strict=self.options.strict
            )
        finally:
            session.close()


def check_stream(options: Options) -> tuple[str, str]:
    """Topic and name, or the sentence that says what a stream needs."""
    if options.topic is None:
        raise InvalidArgument(
            "say which topic is to be read: .option('topic', 'users'), or a pattern such as 'users.*'"
        )
    if options.name is None:
        raise InvalidArgument(
            "say under which name it is to be read: .option('name', 'etl'); messages wait under it while no query runs"
        )
    return options.topic, options.name


def _offset(place: CursorPlace) -> Offset:
    return {"queue": place.queue, "entry": place.entry, "message": place.message, "at": place.at}


def _place(offset: Offset) -> CursorPlace:
    try:
        return msgspec.convert(offset, CursorPlace)
    except msgspec.ValidationError as error:
        raise InvalidArgument(
            f"the checkpoint has an offset that is none of ours, {offset!r:.200}: was it another source's? {error}"
        ) from error
