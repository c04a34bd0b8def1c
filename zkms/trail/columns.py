"""Events as Arrow tables, and as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
WRITING: dict[str, Any] = {"compression": "zstd", "version": "2.6", "write_statistics": True}
"""How pyarrow writes our Parquet."""
ROW_GROUP = 16_384
"""Rows that a reader takes or leaves together: small, so that those of one event are mostly by themselves."""
_MESSAGES = (
    "expired",
    "dead",
    "requeued",
    "nacked",
    "redelivered",
    "due",
    "delayed",
    "published",
    "delivered",
    "acked",
)
_ORDER = pa.array([*(event for event in EVENTS if event not in _MESSAGES), *_MESSAGES])
"""What tells of processes first; then of messages, those last that there are most of."""


def table(rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows with a value for each column."""
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def arranged(table: pa.Table) -> pa.Table:
    """The same rows, those of one event together, in the order that they had: who asks for some events skips the rest.

    Otherwise a question about a thousand purges would read a hundred million acks.
    """
    return table.take(pc.sort_indices(pc.index_in(table["event"], _ORDER)))


def directory(hour: int) -> str:
    """Where rows of this hour since the epoch go."""
    moment = datetime.fromtimestamp(hour * 3600, UTC)
    return f"date={moment:%Y-%m-%d}/hour={moment:%H}"
