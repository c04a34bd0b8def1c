"""Messages as rows: what a stream of a topic consists of, and dead letters too.

data       text, if it was published as text; as JSON, if it was published as anything else but bytes
bytes      if it was published as bytes, or made by a codec, or if it cannot be decoded; as MessagePack, if JSON cannot
           hold it
type       text, json, bytes, codec, or msgpack
reason     why it cannot be decoded, or be JSON; else null
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from zkms import CannotDecode, frame
from zkms.cursor import Missing, Piece
from zkms.errors import NodeMissing, Unauthorised
from zkms.frame import UNWRITABLE, Extra, Frame
from zkms.operations import Check
from zkms.session import Session, Stat
from zkms.tree import Entry, QueueState, Tree, carried, decode, parse_entry

log = logging.getLogger("zkms.spark")
SCHEMA = (
    "data string, bytes binary, type string, topic string, key string, headers map<string,string>, id string, "
    "published_at timestamp, producer string, seq bigint, codec string, entry bigint, place int, reason string"
)
"""A row of a stream. `entry` and `place` say where in its queue it was: they order the rows of all batches."""
WINDOW = 32
"""Reads that are under way at a time."""
NOTHING = Extra()
Row = tuple[Any, ...]
Ask = Callable[[], Future[tuple[bytes, Stat]]]


def rows(session: Session, tree: Tree, topic: str, pieces: Sequence[Piece], at: int, *, strict: bool) -> Iterator[Row]:
    """The messages of these pieces, in order; at each call the same. What had expired at `at` is left out."""
    for start in range(0, len(pieces), WINDOW):
        some = [(piece, parse_entry(piece.path.rpartition("/")[2])) for piece in pieces[start : start + WINDOW]]
        asks = [_ask(session, tree, piece, entry) for piece, entry in some]
        replies = [None if ask is None else ask() for ask in asks]
        for (piece, entry), ask, reply in zip(some, asks, replies, strict=True):
            try:
                raw = carried(entry.name) if ask is None or reply is None else session.answer(reply, ask)[0]
            except (NodeMissing, Unauthorised):
                found = _look_again(session, tree, piece, entry, strict=strict)
                if found is None:
                    continue
                raw = found
            yield from _messages(topic, piece, entry, raw, at)


def _ask(session: Session, tree: Tree, piece: Piece, entry: Entry) -> Ask | None:
    """How to read it; None if its name has it all."""
    return None if entry.carrier else partial(session.get_async, _source(tree, piece, entry))


def _source(tree: Tree, piece: Piece, entry: Entry) -> str:
    return piece.path if entry.body is None else tree.body(*entry.body)


def _look_again(session: Session, tree: Tree, piece: Piece, entry: Entry, *, strict: bool) -> bytes | None:
    """What is there after all, or None if it is to be left out: `Missing` says why, or a warning if not `strict`."""
    queue = piece.path.rpartition("/")[0]
    subscription, topic = queue.split("/")[-2:]
    try:
        return _read(session, tree, piece, entry)
    except (NodeMissing, Unauthorised) as error:
        gone = isinstance(error, NodeMissing)
        if gone and _expired(session, queue, entry):
            log.warning("%r of %r: entry %d is left out, expired", subscription, topic, entry.sequence)
            return None
        why = "was removed by somebody before it was read here" if gone else f"cannot be read here: {error}"
        missing = Missing(topic, subscription, f"entry {entry.sequence} {why}")
        if strict:
            raise missing from error
        log.warning("%s; going on", missing)
        return None


def _read(session: Session, tree: Tree, piece: Piece, entry: Entry) -> bytes:
    """What is there once the server has caught up, which a transaction makes sure of; nothing if its body is not."""
    session.multi([Check(tree.messages, -1)])
    try:
        return session.get(_source(tree, piece, entry))[0]
    except NodeMissing:
        if entry.body is None or session.exists(piece.path) is None:
            raise
        return b""


def _expired(session: Session, queue: str, entry: Entry) -> bool:
    try:
        state = decode(session.get(queue)[0], QueueState)
    except (NodeMissing, msgspec.MsgspecError):
        return False
    return any(first <= entry.sequence <= last for first, last in state.expired)


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
            *told, reason = message(found, place, topic, extra, moment)
            yield (*told, entry.sequence, place, reason)


def _undecodable(topic: str, entry: Entry, raw: bytes, reason: str) -> Row:
    return (None, raw, "bytes", topic, None, None, entry.name, None, None, None, None, entry.sequence, 0, reason)


def extra_of(found: Frame, place: int) -> Extra:
    """What a message has besides its data."""
    return (found.extras[place] if found.extras else None) or NOTHING


def message(found: Frame, place: int, topic: str, extra: Extra, moment: datetime) -> Row:
    """data, bytes, type, topic, key, headers, id, published_at, producer, seq, codec, reason."""
    seq = found.seq + (place if found.numbers is None else found.numbers[place])
    name = f"{found.producer}:{seq}" if extra.id is None else extra.id
    data, raw, kind, reason = content(found.data[place], found.codec)
    where = found.topic or topic
    return data, raw, kind, where, extra.key, extra.headers, name, moment, found.producer, seq, found.codec, reason


def content(data: Any, codec: str | None) -> tuple[str | None, bytes | None, str, str | None]:
    """data, bytes, type, and the reason if it should be JSON and cannot."""
    if codec is not None:
        raw = bytes(data) if isinstance(data, (bytes, bytearray)) else msgspec.msgpack.encode(data)
        return None, raw, "codec", None
    if isinstance(data, (bytes, bytearray)):
        return None, bytes(data), "bytes", None
    if isinstance(data, str):
        return data, None, "text", None
    try:
        return msgspec.json.encode(data).decode(), None, "json", None
    except UNWRITABLE as error:  # MessagePack is what it came in, and holds it again
        return None, msgspec.msgpack.encode(data), "msgpack", f"JSON cannot hold it: {error}"
