"""Fuzzes the server's replies: with any bytes, the connection neither hangs nor grows."""

from __future__ import annotations

import struct
from typing import Any

from kazoo.exceptions import ConnectionDropped
from kazoo.security import OPEN_ACL_UNSAFE

from verification.fuzz.target import Target
from zkms.errors import ZkmsError
from zkms.zookeeper.connection import Connection
from zkms.zookeeper.operations import Check, Create, Delete, Operation, SetData
from zkms.zookeeper.wire import AddWatch, Children, Exists, Get, GetAcl, Multi, Request, acl_bytes, read_event

ACL = acl_bytes(OPEN_ACL_UNSAFE)
OPERATIONS: list[Operation] = [Create("/a", b"x"), SetData("/a", b"y"), Check("/a", 1), Delete("/a")]
STAT = bytes(68)
TEXT = b"\0\0\0\x02/a"


def requests() -> list[Request]:
    """One of each kind."""
    return [
        *(Get("", "/a"), Exists("", "/a"), Children("", "/a"), GetAcl("", "/a"), AddWatch("", "/a")),
        Multi("", OPERATIONS, ACL),
    ]


def check_read(data: bytes) -> None:
    """A reply to each kind of request: its value, or an error at once; never more of it than there are bytes."""
    for request in requests():
        try:
            value = request.read(memoryview(data), 0)
        except (struct.error, ValueError, RuntimeError):  # all of which end the connection: see check_connection
            continue
        items = value if isinstance(value, list) else value[0] if isinstance(value, tuple) else ()
        assert len(items) <= len(data) + 1 if not isinstance(value, tuple) or isinstance(items, list | bytes) else True
    try:
        kind, path = read_event(memoryview(data), 0)
    except (struct.error, ValueError):
        return
    assert isinstance(kind, int)
    assert len(path) <= len(data)


class _Client:
    """As much of a client as a connection needs between a request and its answer."""

    chroot = ""
    awaits_reply = False
    xid = 0
    last_zxid = 0

    def heard(self) -> None:
        """A ping was answered."""


def check_connection(data: bytes) -> None:
    """Anything as the stream of answers: each request is answered once at the most, or the connection is dropped."""
    answers: list[tuple[Any, ZkmsError | None]] = []
    _connection._client = _Client()  # type: ignore[assignment]
    _connection._unanswered.clear()
    _connection._always = {"/a": lambda _kind, _name: None}
    _connection._open = True
    asked = requests()
    for request in asked:
        _connection.ask(request, lambda value, error: answers.append((value, error)))
    _connection._gather()
    try:
        place, for_kazoo = _connection._take(memoryview(data))
    except ConnectionDropped:
        pass
    else:
        assert 0 <= place <= len(data)
        assert not for_kazoo
    assert len(answers) + len(_connection._unanswered) in (len(asked), len(asked))
    for _, error in answers:
        assert error is None or isinstance(error, ZkmsError)


_connection = Connection()


def reply(xid: int, body: bytes, code: int = 0) -> bytes:
    """An answer as it is framed."""
    whole = struct.pack(">iqi", xid, 9, code) + body
    return struct.pack(">i", len(whole)) + whole


GET = b"\0\0\0\x01x" + STAT
CHILDREN = b"\0\0\0\x02" + TEXT * 2 + STAT
ACLS = b"\0\0\0\x01" + b"\0\0\0\x1f" + b"\0\0\0\x05world" + b"\0\0\0\x06anyone" + STAT
DONE = b"\0\0\0\x01\0\xff\xff\xff\xff" + TEXT + b"\0\0\0\x05\0\xff\xff\xff\xff" + STAT
MULTI = (
    DONE + b"\0\0\0\x0d\0\xff\xff\xff\xff" + b"\0\0\0\x02\0\xff\xff\xff\xff" + b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"
)
REFUSED = b"\xff\xff\xff\xff\0\0\0\0\0\xff\xff\xff\x9b" * 4 + b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"
EVENT = struct.pack(">iii", 1, 3, 4) + b"/a/b"
STREAM = (
    reply(1, GET) + reply(2, STAT) + reply(3, CHILDREN) + reply(-1, EVENT) + reply(4, ACLS) + reply(5, b"")
    + reply(6, MULTI)
)  # fmt: skip
WORDS = (
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfc",
    b"\xff\xff\xff\xf3",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\x05\0",
    b"\0\0\0\x01\0",
)
TARGETS = (
    Target("ZooKeeper's replies", check_read, (GET, STAT, CHILDREN, ACLS, MULTI, REFUSED, EVENT), WORDS),
    Target(
        "the stream of replies", check_connection, (STREAM, reply(1, GET), reply(1, b"", -101), reply(-2, b"")), WORDS
    ),
)
