"""Messages as rows: what a stream of a topic consists of, and dead letters too.

data       text, if it was published as text; as JSON, if it was published as anything else but bytes
bytes      if it was published as bytes, or made by a codec, or if it cannot be decoded; as MessagePack, if JSON cannot
           hold it
type       text, json, bytes, codec, or msgpack
reason     why it cannot be decoded, or be JSON; else null
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from zkms import CannotDecode
from zkms.errors import NodeMissing, Unauthorised
from zkms.message import frame
from zkms.message.frame import UNWRITABLE, Extra, Frame
from zkms.replay.cursor import Missing
from zkms.replay.slices import Slice, read_slices
from zkms.tree.entry import Entry
from zkms.tree.paths import Tree
from zkms.tree.records import QueueState, decode
from zkms.zookeeper.session import Session

log = logging.getLogger("zkms.spark")
SCHEMA = (
    "data string, bytes binary, type string, topic string, key string, headers map<string,string>, id string, "
    "published_at timestamp, producer string, seq bigint, codec string, entry bigint, place int, reason string"
)
"""A row of a stream. `entry` and `place` say where in its queue it was: they order the rows of all batches."""
NOTHING = Extra()
Row = tuple[Any, ...]


def rows(session: Session, tree: Tree, topic: str, slices: Sequence[Slice], at: int, *, strict: bool) -> Iterator[Row]:
    """The messages of these slices, in order; at each call the same. What had expired at `at` is left out."""
    for each, entry, found in read_slices(session, tree, slices):
        if isinstance(found, bytes):
            yield from _messages(topic, each, entry, found, at)
        else:
            _leave_out(session, each, entry, found, strict=strict)


def _leave_out(session: Session, each: Slice, entry: Entry, error: NodeMissing | Unauthorised, *, strict: bool) -> None:
    """`Missing` says why an entry cannot be read, or a warning if not `strict`; what expired is a warning anyway."""
    queue = each.path.rpartition("/")[0]
    subscription, topic = queue.split("/")[-2:]
    gone = isinstance(error, NodeMissing)
    if gone and _expired(session, queue, entry):
        log.warning("%r of %r: entry %d is left out, expired", subscription, topic, entry.sequence)
        return
    why = "was removed by somebody before it was read here" if gone else f"cannot be read here: {error}"
    missing = Missing(topic, subscription, f"entry {entry.sequence} {why}")
    if strict:
        raise missing from error
    log.warning("%s; going on", missing)


def _expired(session: Session, queue: str, entry: Entry) -> bool:
    try:
        state = decode(session.get(queue)[0], QueueState)
    except (NodeMissing, msgspec.MsgspecError):
        return False
    return any(first <= entry.sequence <= last for first, last in state.expired)


def _messages(topic: str, each: Slice, entry: Entry, raw: bytes, at: int) -> Iterator[Row]:
    try:
        if entry.body is not None and not raw:
            raise CannotDecode("the body it points to is missing")
        found = frame.decode(raw)
        if len(found.data) != entry.messages:
            raise CannotDecode(f"{len(found.data)} messages, and its name says {entry.messages}")
    except CannotDecode as error:
        if each.first == 0:  # of an entry that is read in several slices, once
            yield _undecodable(topic, entry, raw, error.reason)
        return
    moment = datetime.fromtimestamp(found.published_at, UTC)
    for place in range(each.first, each.last):
        extra = extra_of(found, place)
        if not each.done >> place & 1 and not 0 < extra.expires <= at:
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
