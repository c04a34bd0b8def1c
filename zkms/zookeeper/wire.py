"""ZooKeeper's requests as bytes, and its replies as values: all that a session sends once it is connected.

A request is written once, by the thread that asks, and read once, on the connection's thread. `chroot` is what the
server has to put before all our paths; a request's `path` is ours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from kazoo.exceptions import EXCEPTIONS
from kazoo.security import ACL

from zkms.zookeeper.operations import Check, Create, Delete, Operation, SetData

Watch = Callable[[], None]

_INT = struct.Struct(">i")
_STAT = struct.Struct(">qqqqiiiqiiq")
_RESULT = struct.Struct(">i?i")
_CREATE, _DELETE, _SET_DATA, _CHECK, _ERROR = 1, 2, 5, 13, -1
_HEADERS = {kind: _RESULT.pack(kind, False, -1) for kind in (_CREATE, _DELETE, _SET_DATA, _CHECK)}
_END = _RESULT.pack(-1, True, -1)
_FLAGS = [_INT.pack(flags) for flags in range(4)]
RECURSIVE = _INT.pack(1)
ANY_WATCHER = _INT.pack(3)
NO_NODE = -101

CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4
"""What a watch event tells of its path."""


class Stat(NamedTuple):
    """What ZooKeeper knows of a znode besides its data."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeralOwner: int  # noqa: N815 - ZooKeeper's own names
    dataLength: int  # noqa: N815
    numChildren: int  # noqa: N815
    pzxid: int


def _text(value: str) -> bytes:
    raw = value.encode()
    return _INT.pack(len(raw)) + raw


def _place(chroot: str, path: str) -> bytes:
    return _text(chroot + path if path != "/" else chroot or path)


def _read_stat(reply: memoryview, offset: int) -> Stat:
    return Stat._make(_STAT.unpack_from(reply, offset))


def _read_text(reply: memoryview, offset: int) -> tuple[str, int]:
    (length,) = _INT.unpack_from(reply, offset)
    end = offset + 4 + length
    if length < 0 or end > len(reply):  # or who reads a list of them would go in circles
        raise ValueError(f"a text of {length} bytes at {offset} of {len(reply)}")
    return str(reply[offset + 4 : end], "utf-8"), end


class Request:
    """One request: its `code`, its bytes, and how its reply is read."""

    code: ClassVar[int]
    watches: ClassVar[str] = ""
    """What a one-shot watch of it waits for: "data" or "children"."""
    missing_is_none: ClassVar[bool] = False
    """Whether "no such znode" is an answer and not an error."""

    def __init__(self, path: str, raw: bytes, watch: Watch | None = None) -> None:
        self.path = path
        self.raw = raw
        self.watch = watch

    def read(self, reply: memoryview, offset: int) -> Any:
        """The value in a reply that is no error."""
        raise NotImplementedError


class Get(Request):
    """A znode's data and stat."""

    code = 4
    watches = "data"

    def __init__(self, chroot: str, path: str, watch: Watch | None = None) -> None:
        super().__init__(path, _place(chroot, path) + (b"\0" if watch is None else b"\1"), watch)

    def read(self, reply: memoryview, offset: int) -> tuple[bytes, Stat]:
        """-1 is ZooKeeper's length of no data at all."""
        (length,) = _INT.unpack_from(reply, offset)
        end = offset + 4 + max(0, length)
        return bytes(reply[offset + 4 : end]), _read_stat(reply, end)


class Exists(Request):
    """A znode's stat, or None."""

    code = 3
    watches = "data"
    missing_is_none = True

    def __init__(self, chroot: str, path: str, watch: Watch | None = None) -> None:
        super().__init__(path, _place(chroot, path) + (b"\0" if watch is None else b"\1"), watch)

    def read(self, reply: memoryview, offset: int) -> Stat:
        """Only a stat."""
        return _read_stat(reply, offset)


class Children(Request):
    """The children's names and the parent's stat."""

    code = 12
    watches = "children"

    def __init__(self, chroot: str, path: str, watch: Watch | None = None) -> None:
        super().__init__(path, _place(chroot, path) + (b"\0" if watch is None else b"\1"), watch)

    def read(self, reply: memoryview, offset: int) -> tuple[list[str], Stat]:
        """A vector of names, then the stat."""
        (count,) = _INT.unpack_from(reply, offset)
        offset += 4
        names = []
        for _ in range(count):
            name, offset = _read_text(reply, offset)
            names.append(name)
        return names, _read_stat(reply, offset)


class GetAcl(Request):
    """Who may do what with a znode: the rights, as bits, of "SCHEME:NAME"; and its stat."""

    code = 6

    def __init__(self, chroot: str, path: str) -> None:
        super().__init__(path, _place(chroot, path))

    def read(self, reply: memoryview, offset: int) -> tuple[dict[str, int], Stat]:
        """Somebody may be on the list several times: what counts is all of it."""
        (count,) = _INT.unpack_from(reply, offset)
        offset += 4
        found: dict[str, int] = {}
        for _ in range(count):
            (bits,) = _INT.unpack_from(reply, offset)
            scheme, offset = _read_text(reply, offset + 4)
            name, offset = _read_text(reply, offset)
            identity = f"{scheme}:{name}"
            found[identity] = found.get(identity, 0) | bits
        return found, _read_stat(reply, offset)


class WhoAmI(Request):
    """Who the server takes us for: pairs of scheme and name. Of digest the name is without its hash."""

    code = 107

    def __init__(self) -> None:
        super().__init__("/", b"")

    def read(self, reply: memoryview, offset: int) -> list[tuple[str, str]]:
        """A vector of pairs."""
        (count,) = _INT.unpack_from(reply, offset)
        offset += 4
        found = []
        for _ in range(count):
            scheme, offset = _read_text(reply, offset)
            name, offset = _read_text(reply, offset)
            found.append((scheme, name))
        return found


class AddWatch(Request):
    """Watch a znode and all below it until the connection ends: every event names the znode it is about."""

    code = 106

    def __init__(self, chroot: str, path: str) -> None:
        super().__init__(path, _place(chroot, path) + RECURSIVE)

    def read(self, reply: memoryview, offset: int) -> None:
        """Nothing but that it was done."""


class RemoveWatches(Request):
    """Watch a znode no more."""

    code = 18

    def __init__(self, chroot: str, path: str) -> None:
        super().__init__(path, _place(chroot, path) + ANY_WATCHER)

    def read(self, reply: memoryview, offset: int) -> None:
        """Nothing but that it was done."""


class Multi(Request):
    """A transaction: a path for each create, a Stat for each set, True for the others, or an error for each."""

    code = 14

    def __init__(
        self,
        chroot: str,
        operations: Sequence[Operation],
        acl: bytes,
        acl_by_path: Callable[[str], bytes] | None = None,
    ) -> None:
        """`acl` is for what is created without one of its own, unless `acl_by_path` chooses it."""
        parts: list[bytes] = []
        pack = _INT.pack
        for operation in operations:
            path = (chroot + operation.path).encode()  # never "/", which cannot be made, written or removed
            length = pack(len(path))
            kind = operation.__class__
            if kind is Create:
                data = operation.data  # type: ignore[union-attr]
                flags = _FLAGS[operation.ephemeral + 2 * operation.sequence]  # type: ignore[union-attr]
                own = operation.acl or (acl if acl_by_path is None else acl_by_path(operation.path))  # type: ignore[union-attr]
                parts += (_HEADERS[_CREATE], length, path, pack(len(data)), data, own, flags)
            elif kind is Delete:
                parts += (_HEADERS[_DELETE], length, path, pack(operation.version))  # type: ignore[union-attr]
            elif kind is SetData:
                data = operation.data  # type: ignore[union-attr]
                parts += (_HEADERS[_SET_DATA], length, path, pack(len(data)), data, pack(operation.version))  # type: ignore[union-attr]
            elif kind is Check:
                parts += (_HEADERS[_CHECK], length, path, pack(operation.version))  # type: ignore[union-attr]
        parts.append(_END)
        super().__init__(operations[0].path, b"".join(parts))
        self._chroot = len(chroot)

    def read(self, reply: memoryview, offset: int) -> list[Any]:
        """In the order of the operations; a failed one has an exception in each place."""
        results: list[Any] = []
        while True:
            kind, done, _ = _RESULT.unpack_from(reply, offset)
            offset += _RESULT.size
            if done:
                return results
            if kind == _CREATE:
                path, offset = _read_text(reply, offset)
                results.append(path[self._chroot :])
            elif kind == _SET_DATA:
                results.append(_read_stat(reply, offset))
                offset += _STAT.size
            elif kind == _ERROR:
                (code,) = _INT.unpack_from(reply, offset)
                offset += 4
                results.append(EXCEPTIONS[code]())  # 0: undone, because of another
            else:
                results.append(True)


def acl_bytes(acl: Sequence[ACL]) -> bytes:
    """An ACL as a create carries it."""
    return _INT.pack(len(acl)) + b"".join(acl_entry(each.perms, each.id.scheme, each.id.id) for each in acl)


def acl_entry(bits: int, scheme: str, name: str) -> bytes:
    """One identity's rights, as a part of an ACL."""
    return _INT.pack(bits) + _text(scheme) + _text(name)


def read_event(event: memoryview, offset: int) -> tuple[int, str]:
    """Kind and path of a watch event."""
    (kind,) = _INT.unpack_from(event, offset)
    return kind, _read_text(event, offset + 8)[0]
