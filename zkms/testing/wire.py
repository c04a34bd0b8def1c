"""As much of ZooKeeper's wire protocol as a proxy needs: where a frame ends, what it asks for, what it answers.

frame     length: int32, then as many bytes
request   xid: int32, operation: int32, ...     the first frame of a connection asks for a session and has neither
reply     xid: int32, zxid: int64, err: int32, ...
"""

from __future__ import annotations

import struct
from asyncio import IncompleteReadError, StreamReader
from collections.abc import AsyncIterator

CONNECT = "connect"
PING = "ping"

OPERATIONS = {
    1: "create",
    2: "delete",
    3: "exists",
    4: "get_data",
    5: "set_data",
    6: "get_acl",
    7: "set_acl",
    8: "get_children",
    9: "sync",
    11: PING,
    12: "get_children2",
    13: "check",
    14: "multi",
    15: "create2",
    16: "reconfig",
    18: "remove_watches",
    19: "create_container",
    21: "create_ttl",
    22: "multi_read",
    100: "auth",
    101: "set_watches",
    102: "sasl",
    105: "set_watches2",
    106: "add_watch",
    -11: "close",
}

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">ii")
_NO_OPERATION = 999
_LONGEST = 64 * 1024 * 1024


async def frames(reader: StreamReader) -> AsyncIterator[bytes]:
    """Yield whole frames, lengths included, until the stream ends; what is not in frames comes as it arrives."""
    try:
        while True:
            head = await reader.readexactly(_LENGTH.size)
            (length,) = _LENGTH.unpack(head)
            if not 0 <= length <= _LONGEST:
                # A four-letter word or a TLS handshake: let it pass, unread.
                yield head
                break
            yield head + await reader.readexactly(length)
        while part := await reader.read(65_536):
            yield part
    except IncompleteReadError as end:
        if end.partial:
            yield end.partial


def request(frame: bytes) -> tuple[int, str]:
    """Return a request's xid and the name of its operation (its number for one that has no name here)."""
    if len(frame) < _LENGTH.size + _REQUEST.size:
        return 0, "unknown"
    xid, operation = _REQUEST.unpack_from(frame, _LENGTH.size)
    return xid, OPERATIONS.get(operation, str(operation))


def unknown(frame: bytes) -> bytes:
    """The same request for an operation that no ZooKeeper knows."""
    return frame[:8] + _LENGTH.pack(_NO_OPERATION) + frame[12:]


def reply_xid(frame: bytes) -> int | None:
    """Return the xid of the request that a frame answers; watches and pings have negative ones."""
    if len(frame) < 2 * _LENGTH.size:
        return None
    (xid,) = _LENGTH.unpack_from(frame, _LENGTH.size)
    return int(xid)
