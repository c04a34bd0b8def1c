"""Events as Arrow tables, and as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from zkms.trail.event import COLUMNS, EVENTS

_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "array<bigint>": pa.list_(pa.int64()),
    "array<string>": pa.list_(pa.string()),
}
SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in COLUMNS.items()])
_COUNTED = ("i", "t", "m", "seq", "places", "ids", "keys", "at", "due", "expires", "zxid")
"""Columns in which few rows say the same: a dictionary of their values would be read besides and save nothing."""
_LISTED = [
    f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
    for field in SCHEMA
    if field.name not in _COUNTED
]
_WRITING: dict[str, Any] = {
    "compression": "zstd",
    "version": "2.6",
    "write_statistics": True,
    "use_dictionary": _LISTED,
}
ROW_GROUP = 65_536
"""Rows that a reader takes or leaves together, at most."""
_MESSAGES = (
    *("expired", "dead", "requeued", "nacked", "redelivered", "due", "delayed"),
    *("published", "delivered", "acked"),
)
_ORDER = pa.array([*(event for event in EVENTS if event not in _MESSAGES), *_MESSAGES])
"""What tells of processes first; then of messages, those last that there are most of."""
_MOST = pa.array(["published", "delivered", "acked"])
"""Events whose rows are in row groups of their own, so that a question about one does not read of another."""


def table(rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows with a value for each column."""
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def parquet_writer(sink: Any, schema: pa.Schema = SCHEMA) -> pq.ParquetWriter:
    """What writes Parquet as we do."""
    return pq.ParquetWriter(sink, schema, **_WRITING)


def write(table: pa.Table, into: pq.ParquetWriter) -> None:
    """The rows, those of one event together, in the order that they had: who asks for some events skips the rest.

    Otherwise a question about a thousand purges would read a hundred million acks.
    """
    rows = table.take(pc.sort_indices(pc.index_in(table["event"], _ORDER)))
    most = pc.fill_null(pc.index_in(rows["event"], _MOST), -1)
    for place in range(-1, len(_MOST)):
        these = rows.filter(pc.equal(most, place))
        if len(these):
            into.write_table(these, row_group_size=ROW_GROUP)


def directory(hour: int) -> str:
    """Where rows of this hour since the epoch go."""
    moment = datetime.fromtimestamp(hour * 3600, UTC)
    return f"date={moment:%Y-%m-%d}/hour={moment:%H}"
