"""Events as Arrow tables, and as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from zkms.trail.event import COLUMNS

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


def table(rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows with a value for each column."""
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    arrays = [pa.array(values, type=field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def directory(hour: int) -> str:
    """Where rows of this hour since the epoch go."""
    moment = datetime.fromtimestamp(hour * 3600, UTC)
    return f"date={moment:%Y-%m-%d}/hour={moment:%H}"
