"""Messages as rows: what a stream of a topic consists of, and dead letters too.

data       text, if it was published as text; as JSON, if it was published as anything else but bytes
bytes      if it was published as bytes, or made by a codec, or if it cannot be decoded
type       text, json, bytes, or codec
reason     why it cannot be decoded; null for a message
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from zkms import CannotDecode, frame
from zkms.cursor import Missing
from zkms.frame import Extra, Frame
from zkms.pieces import Piece, fetch
from zkms.session import Session
from zkms.tree import Entry, Tree

SCHEMA = (
    "data string, bytes binary, type string, topic string, key string, headers map<string,string>, id string, "
    "published_at timestamp, producer string, seq bigint, codec string, entry bigint, place int, reason string"
)
"""A row of a stream. `entry` and `place` say where in its queue it was: they order the rows of all batches."""
NOTHING = Extra()
Row = tuple[Any, ...]


def rows(session: Session, tree: Tree, topic: str, pieces: Sequence[Piece], at: int, *, strict: bool) -> Iterator[Row]:
    """The messages of these pieces, in order; at each call the same. What had expired at `at` is left out."""
    for piece, entry, raw in fetch(session, tree, pieces):
        if raw is not None:
            yield from _messages(topic, piece, entry, raw, at)
        elif strict:
            subscription, place = piece.path.split("/")[-3:-1]
            what = f"entry {entry.sequence} was removed by somebody before it was read here"
            raise Missing(place, subscription, what)


def _messages(topic: str, piece: Piece, entry: Entry, raw: bytes, at: int) -> Iterator[Row]:
    try:
        if entry.body is not None and not raw:
            raise CannotDecode("the body it points to is missing")
        found = frame.decode(raw)
        if len(found.data) != entry.messages:
            raise CannotDecode(f"{len(found.data)} messages, and its name says {entry.messages}")
    except CannotDecode as error:
        if piece.first == 0:  # of an entry that is read in several pieces, once
            yield _undecodable(topic, entry, raw, error.reason)
        return
    moment = datetime.fromtimestamp(found.published_at, UTC)
    for place in range(piece.first, piece.last):
        extra = extra_of(found, place)
        if not piece.done >> place & 1 and not 0 < extra.expires <= at:
            yield (*message(found, place, topic, extra, moment), entry.sequence, place, None)


def _undecodable(topic: str, entry: Entry, raw: bytes, reason: str) -> Row:
    return (None, raw, "bytes", topic, None, None, entry.name, None, None, None, None, entry.sequence, 0, reason)


def extra_of(found: Frame, place: int) -> Extra:
    """What a message has besides its data."""
    return (found.extras[place] if found.extras else None) or NOTHING


def message(found: Frame, place: int, topic: str, extra: Extra, moment: datetime) -> Row:
    """data, bytes, type, topic, key, headers, id, published_at, producer, seq, codec."""
    seq = found.seq + (place if found.numbers is None else found.numbers[place])
    name = f"{found.producer}:{seq}" if extra.id is None else extra.id
    data, raw, kind = content(found.data[place], found.codec)
    where = found.topic or topic
    return data, raw, kind, where, extra.key, extra.headers, name, moment, found.producer, seq, found.codec


def content(data: Any, codec: str | None) -> tuple[str | None, bytes | None, str]:
    """data, bytes, type."""
    if codec is not None:
        return None, bytes(data) if isinstance(data, (bytes, bytearray)) else msgspec.msgpack.encode(data), "codec"
    if isinstance(data, (bytes, bytearray)):
        return None, bytes(data), "bytes"
    if isinstance(data, str):
        return data, None, "text"
    return msgspec.json.encode(data).decode(), None, "json"
