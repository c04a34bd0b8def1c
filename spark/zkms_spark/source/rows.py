"""From rows to messages.

data      what the message holds; without such a column, an object of all the other columns
key       string
headers   map<string, string>
topic     string, where the option `topic` does not say it for all
"""

from __future__ import annotations

from typing import Any

import msgspec
from pyspark.sql import Row
from pyspark.sql.types import MapType, StringType, StructType

from zkms import InvalidArgument

KEY, HEADERS, TOPIC, DATA = "key", "headers", "topic", "data"


def check_schema(schema: StructType, topic: str | None) -> None:
    """`InvalidArgument` if rows of this schema cannot be messages."""
    types = {field.name: field.dataType for field in schema.fields}
    texts = MapType(StringType(), StringType())
    for name in (KEY, TOPIC):
        if name in types and not isinstance(types[name], StringType):
            raise InvalidArgument(f"the column {name!r} must be a string, not {types[name].simpleString()}")
    kind = types.get(HEADERS)
    if kind is not None and not (
        isinstance(kind, MapType) and (kind.keyType, kind.valueType) == (texts.keyType, texts.valueType)
    ):
        raise InvalidArgument(f"the column 'headers' must be a map<string,string>, not {kind.simpleString()}")
    if topic is None and TOPIC not in types:
        raise InvalidArgument("say which topic: .option('topic', 'users'), or a column 'topic'")
    if DATA not in types and not set(types) - {KEY, HEADERS, TOPIC}:
        raise InvalidArgument("there is nothing to publish: give a column 'data', or others that make up an object")


def message(row: Row, topic: str | None) -> tuple[str, Any, str | None, dict[str, str] | None]:
    """topic, data, key, headers."""
    values = row.asDict()
    to = values.pop(TOPIC, None) if topic is None else topic
    if topic is not None:
        values.pop(TOPIC, None)
    if to is None:
        raise InvalidArgument("a row has no topic: its column 'topic' is null")
    key, headers = values.pop(KEY, None), values.pop(HEADERS, None)
    return to, plain(values.get(DATA, values)), key, headers


def plain(value: Any) -> Any:
    """What JSON can hold, and bytes as they are: moments and decimals become text."""
    if isinstance(value, Row):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return msgspec.to_builtins(value)
