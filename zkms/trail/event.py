"""The schema of a trail, version 1: JSON lines, an event a line, ranges of messages rather than single ones.

A file is NODE-STARTED-NUMBER.jsonl. Its first line is an `opened` event, which says whose it is, its last line a
`closed` one, if its process lived to write it. The lines between have a number `i`, counted through all files of a
process: what is missing in `i` is lost, and where the recorder knows of it, a `lost` event tells how many since when.

A message's id is PRODUCER:SEQ. `seq` is the first message of a range and `n` its length; where the range has holes
`places` lists the messages in it, counted from `seq`, and `n` is how many these are. A field that says nothing is left
out of the line; in Parquet it is null.

What happened, and what such a line says besides when:

    opened        node host pid run started file flush lost v     a file begins; `lost`: lines this process lost so far,
                  [removed]                                       `removed`: files it removed so far, to save space
    closed        lines lost [n at reason]                        it ends; reason "unclean": its process was killed,
                                                                  `n` lines went with it, or nobody knows how many
    lost          n at [of] reason                                n lines are missing, since `at`; `of`: a file's name
    session       state                                           connected, suspended, expired, closed
    subscribed    sub topic kind [partition epoch zxid reason]    it gets what is published from now on;
                                                                  with `partition`: this node owns it from `epoch` on
    unsubscribed  sub topic kind [zxid reason]                    given up; what waited for it is dropped
    published     topic producer seq n subs at size [keys ids zxid expires]   stored for all of `subs`, none if empty
    delayed       topic producer seq n due at [keys ids zxid expires]   stored, to be published at `due`
    due           topic producer seq n subs due zxid              moved into the queues of `subs`, now
    delivered     sub topic kind producer seq n at size [partition epoch attempt]   handed over for the first time
    redelivered   the same                                        handed over again, or perhaps again (see handed.py)
    acked         sub topic kind producer seq n [partition epoch zxid]   done with
    nacked        sub topic kind producer seq n attempt due [partition epoch reason]   given back, to come again
    expired       [sub] topic producer seq n expires              dropped, as its time was over
    dead          sub topic [producer seq] n reason               set aside: dead letters
    requeued      sub topic producer seq n attempt [kind]         a dead letter is to be delivered again: `redelivered`
    gap           sub topic reason                                something may have been missed before this point
    purged        sub topic n reason [partition]                  `n` messages were removed from a queue, by this node

What is about messages has their `priority`, if they have one; `attempt` is said of single messages alone. A
subscription to a pattern is called `NAME (PATTERN)`, as receipts call it: what is told of its queue has the pattern as
`topic`, what is told of its messages the topic that they were published to.

`t` is the process's wall clock, `m` its monotonic one, both in seconds; `at` the wall clock at which the frame was
published, by its producer's clock. Where a process has no clock to be trusted, zxids order what ZooKeeper stored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated
from zlib import adler32, crc32

import msgspec

from zkms.names import is_pattern

VERSION = 1
SUFFIX = ".jsonl"
OPEN_SUFFIX = ".open"
"""Follows SUFFIX as long as the file is written to."""

EVENTS = (
    *("opened", "closed", "lost", "session", "subscribed", "unsubscribed"),
    *("published", "delayed", "due", "delivered", "redelivered", "acked", "nacked", "expired", "dead"),
    *("gap", "purged", "requeued"),
)
KINDS = ("live", "durable", "group")
VIOLATIONS = {
    "lost": "stored for a durable or group subscription, and neither delivered nor accounted for by another event",
    "missed": "the same for a live subscription, without a gap event that would cover it",
    "duplicated": "delivered again to the same subscription, by an event that does not call itself redelivered",
    "out_of_order": "delivered first after a younger message of its producer and priority, and of its key in a group",
    "early": "delivered before it was due",
    "after_expiry": "delivered after it had expired",
    "not_owner": "acked with an epoch that was over: another node had taken the partition or the name before, by zxid",
}
"""What an audit can find, and what `zkms trail generate` can plant."""


Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""What the tables hold: a line with a larger number is no event."""


class Event(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line. Which fields an event has is said above."""

    event: str
    i: Int64 = 0
    t: float
    m: float | None = None
    topic: str | None = None
    producer: str | None = None
    seq: Int64 | None = None
    n: Int64 | None = None
    places: list[Int64] | None = None
    ids: list[str | None] | None = None
    keys: list[Int64] | None = None
    """One hash a message, 0 for one without a key; None if none has a key."""
    sub: str | None = None
    subs: list[str] | None = None
    kind: str | None = None
    partition: Int32 | None = None
    epoch: Int64 | None = None
    """Of the partition's or the durable name's ownership: the transaction that began it, so each owner's is greater."""
    size: Int64 | None = None
    at: float | None = None
    due: float | None = None
    expires: float | None = None
    attempt: Int32 | None = None
    priority: Int32 | None = None
    zxid: Int64 | None = None
    state: str | None = None
    reason: str | None = None
    of: str | None = None
    lines: Int64 | None = None
    """Of a file, with its first and last."""
    lost: Int64 | None = None
    removed: Int64 | None = None
    v: Int64 | None = None
    node: str | None = None
    host: str | None = None
    pid: Int64 | None = None
    run: str | None = None
    """Random, one for each recorder: tells two processes of one name apart."""
    started: float | None = None
    file: Int64 | None = None
    flush: float | None = None
    """A kill loses what happened within so many seconds before it, at the most."""


FROM_OPENED = ("node", "host", "pid", "run", "started", "file")
"""Fields that a file's first line says for all of its lines; in Parquet every row has them."""

COLUMNS: dict[str, str] = {
    "source": "string",
    "node": "string",
    "host": "string",
    "pid": "bigint",
    "run": "string",
    "started": "double",
    "file": "bigint",
    "i": "bigint",
    "event": "string",
    "t": "double",
    "m": "double",
    "topic": "string",
    "producer": "string",
    "seq": "bigint",
    "n": "bigint",
    "places": "array<bigint>",
    "ids": "array<string>",
    "keys": "array<bigint>",
    "sub": "string",
    "subs": "array<string>",
    "kind": "string",
    "partition": "int",
    "epoch": "bigint",
    "size": "bigint",
    "at": "double",
    "due": "double",
    "expires": "double",
    "attempt": "int",
    "priority": "int",
    "zxid": "bigint",
    "state": "string",
    "reason": "string",
    "of": "string",
    "lines": "bigint",
    "lost": "bigint",
    "removed": "bigint",
    "flush": "double",
}
"""The Parquet files' columns, with types as Spark spells them; `source` is the file's name without its suffix."""

PARTITIONS: dict[str, str] = {"date": "date", "hour": "int"}
"""The directories of the Parquet layout, date=2026-11-16/hour=09: of `t`, in UTC."""


def key_hash(key: str) -> int:
    """A key as a number from 1 to 2**63 - 1, the same in every process and version."""
    raw = key.encode()
    return (crc32(raw) << 31 | adler32(raw) & 0x7FFFFFFF) or 1


@lru_cache(maxsize=4096)
def called(subscription: str, topic: str) -> str:
    """What a trail calls a subscription: with the pattern, if it has one, as its messages are of other topics."""
    return f"{subscription} ({topic})" if is_pattern(topic) else subscription


def message_id(producer: str, seq: int) -> str:
    """As Message.id and receipts have it."""
    return f"{producer}:{seq}"
