"""The four writes of ZooKeeper that a transaction is made of, and how large a transaction gets."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

MAX_TRANSACTION = 512 * 1024
"""Bytes of one request. The server drops the connection, and all in flight with it, past jute.maxbuffer (1 MiB)."""

USUAL_ACL = 48
_PER_OPERATION = 48 + USUAL_ACL  # multi header, lengths, flags, and an ACL of usual size


class Create(msgspec.Struct, frozen=True):
    """Make a znode; ZooKeeper appends ten digits if `sequence`."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False
    acl: bytes = b""
    """As tree/acl.py makes it; empty for that of the session, or of the znode's place."""

    def __str__(self) -> str:
        return f"create {self.path}"


class SetData(msgspec.Struct, frozen=True):
    """Write a znode's data, if it has `version` (-1: any)."""

    path: str
    data: bytes
    version: int = -1

    def __str__(self) -> str:
        return f"set {self.path} at version {self.version}"


class Delete(msgspec.Struct, frozen=True):
    """Remove a znode, if it has `version` (-1: any)."""

    path: str
    version: int = -1

    def __str__(self) -> str:
        return f"delete {self.path}"


class Check(msgspec.Struct, frozen=True):
    """Do nothing, if the znode's data has `version`; else fail the transaction."""

    path: str
    version: int

    def __str__(self) -> str:
        return f"check {self.path} at version {self.version}"


Operation = Create | SetData | Delete | Check


def transaction_size(operations: Sequence[Operation], overhead: int = 0) -> int:
    """Upper estimate of the request's bytes (paths are counted in UTF-8); `overhead` is the session's."""
    size = 64
    for operation in operations:
        size += _PER_OPERATION + overhead + len(operation.path.encode())
        if isinstance(operation, Create):
            size += len(operation.data) + len(operation.acl)
        elif isinstance(operation, SetData):
            size += len(operation.data)
    return size
