"""ZooKeeper's wire format from the server's side: requests are read, replies and events are written."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from zkms.zookeeper.operations import Check, Create, Delete, Operation, SetData
from zkms.zookeeper.wire import Stat

GET, EXISTS, CHILDREN, ADD_WATCH, REMOVE_WATCHES, MULTI = 4, 3, 12, 106, 18, 14
Result = str | Stat | bool
_INT = struct.Struct(">i")
_FRAME = struct.Struct(">iii")
_HEADER = struct.Struct(">i?i")
_REPLY = struct.Struct(">iqi")
_STAT = struct.Struct(">qqqqiiiqiiq")
_CREATE, _DELETE, _SET_DATA, _CHECK, _ERROR = 1, 2, 5, 13, -1


def _text(raw: bytes, offset: int) -> tuple[str, int]:
    end = offset + 4 + _INT.unpack_from(raw, offset)[0]
    return raw[offset + 4 : end].decode(), end


def _buffer(value: bytes) -> bytes:
    return _INT.pack(len(value)) + value


def header(raw: bytes, offset: int) -> tuple[int, int, int]:
    """A request's length, number and code."""
    length, xid, code = _FRAME.unpack_from(raw, offset)
    return length, xid, code


def path(raw: bytes) -> str:
    """The path that a request begins with."""
    return _text(raw, 0)[0]


def read_path(raw: bytes) -> tuple[str, bool]:
    """The path of a read, and whether it is to be watched."""
    path, end = _text(raw, 0)
    return path, raw[end] != 0


def read_operations(raw: bytes) -> list[Operation]:
    """Those of a transaction."""
    operations: list[Operation] = []
    offset = 0
    while True:
        kind, done, _ = _HEADER.unpack_from(raw, offset)
        offset += _HEADER.size
        if done:
            return operations
        path, offset = _text(raw, offset)
        if kind == _CREATE:
            data, offset = _data(raw, offset)
            offset = _skip_acl(raw, offset)
            (flags,) = _INT.unpack_from(raw, offset)
            operations.append(Create(path, data, ephemeral=bool(flags & 1), sequence=bool(flags & 2)))
        elif kind == _SET_DATA:
            data, offset = _data(raw, offset)
            operations.append(SetData(path, data, _INT.unpack_from(raw, offset)[0]))
        else:
            (version,) = _INT.unpack_from(raw, offset)
            operations.append(Delete(path, version) if kind == _DELETE else Check(path, version))
        offset += 4


def _data(raw: bytes, offset: int) -> tuple[bytes, int]:
    end = offset + 4 + _INT.unpack_from(raw, offset)[0]
    return raw[offset + 4 : end], end


def _skip_acl(raw: bytes, offset: int) -> int:
    (count,) = _INT.unpack_from(raw, offset)
    offset += 4
    for _ in range(count):
        _, offset = _text(raw, offset + 4)
        _, offset = _text(raw, offset)
    return offset


def reply(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    """An answer, without the length before it."""
    return _REPLY.pack(xid, zxid, code) + body


def event(zxid: int, kind: int, path: str) -> bytes:
    """A watch event: of a session that is connected."""
    return _REPLY.pack(-1, zxid, 0) + _INT.pack(kind) + _INT.pack(3) + _buffer(path.encode())


def stat(value: Stat) -> bytes:
    """What exists() answers."""
    return _STAT.pack(*value)


def data(raw: bytes, value: Stat) -> bytes:
    """What get() answers."""
    return _buffer(raw) + _STAT.pack(*value)


def children(names: Sequence[str], value: Stat) -> bytes:
    """What get_children() answers."""
    return _INT.pack(len(names)) + b"".join(_buffer(name.encode()) for name in names) + _STAT.pack(*value)


def results(operations: Sequence[Operation], values: Sequence[Result]) -> bytes:
    """What a transaction answers that was carried out."""
    parts: list[bytes] = []
    for operation, value in zip(operations, values, strict=True):
        if isinstance(operation, Create):
            parts.append(_HEADER.pack(_CREATE, False, 0) + _buffer(str(value).encode()))
        elif isinstance(value, Stat):
            parts.append(_HEADER.pack(_SET_DATA, False, 0) + _STAT.pack(*value))
        else:
            parts.append(_HEADER.pack(_DELETE if isinstance(operation, Delete) else _CHECK, False, 0))
    return b"".join(parts) + _HEADER.pack(-1, True, -1)


def refused(operations: Sequence[Operation], index: int, code: int) -> bytes:
    """What a transaction answers that was not: those before the reason were undone, those after it never tried."""
    parts = [
        _HEADER.pack(_ERROR, False, each) + _INT.pack(each)
        for each in [0] * index + [code] + [-2] * (len(operations) - index - 1)
    ]
    return b"".join(parts) + _HEADER.pack(-1, True, -1)
