"""Sets ZooKeeper's own quotas on znodes and bytes, as a backstop behind the limits of queues.

They apply to messages: queues, bodies, and delayed messages. Registrations, ledgers and the numbers of producers have
no quota, so that subscribers can reconnect and ack when a quota is used up. Queues have a quota on znodes only: one on
bytes would also refuse to mark a queue as gone.

A server enforces quotas if it runs with `zookeeper.enforceQuota=true`; otherwise it only logs a warning. It checks what
is already stored, so the last transaction may exceed the quota.
"""

from __future__ import annotations

import re

import msgspec

from zkms.errors import InvalidArgument, NodeMissing
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Create, Delete, Operation, SetData
from zkms.zookeeper.recipes import attempt
from zkms.zookeeper.session import Session

QUOTAS = "/zookeeper/quota"
LIMITS, STATS = "zookeeper_limits", "zookeeper_stats"
_HARD = ("byteHardLimit", "countHardLimit")
_NUMBER = re.compile(r"(count|bytes|countHardLimit|byteHardLimit)=(-?\d+)")


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a path, and what is used of them."""

    path: str
    znodes: int | None = None
    """None if there is no limit."""
    bytes: int | None = None
    used_znodes: int = 0
    used_bytes: int = 0


def limited(tree: Tree) -> tuple[str, ...]:
    """Return the paths that quotas are set on."""
    return tree.messages, tree.bodies, tree.delayed


def read_quotas(session: Session, tree: Tree) -> list[Quota]:
    """Return the hard quotas of a tree, also one on ROOT that was set by other means."""
    _check(session)
    found = []
    for path in (tree.root, *limited(tree)):
        try:
            limits = _numbers(session.get(f"{QUOTAS}{path}/{LIMITS}")[0])
            used = _numbers(session.get(f"{QUOTAS}{path}/{STATS}")[0])
        except NodeMissing:
            continue
        znodes, size = limits.get("countHardLimit", -1), limits.get("byteHardLimit", -1)
        found.append(
            Quota(
                path=path,
                znodes=znodes if znodes >= 0 else None,
                bytes=size if size >= 0 else None,
                used_znodes=used.get("count", 0),
                used_bytes=used.get("bytes", 0),
            )
        )
    return found


def set_quotas(session: Session, tree: Tree, *, znodes: int | None = None, size: int | None = None) -> None:
    """Limit the znodes of each path, and the bytes of bodies and of delayed messages.

    A limit that is not given stays unchanged.
    """
    _check(session)
    for what, value in (("znodes", znodes), ("bytes", size)):
        if value is not None and value < 1:
            raise InvalidArgument(f"a quota of {value} {what} would let nothing in: give at least 1")
    if znodes is None and size is None:
        raise InvalidArgument("give a number of znodes, of bytes, or both")
    for path in limited(tree):
        limits = {"countHardLimit": znodes, "byteHardLimit": None if path == tree.messages else size}
        given = {name: limit for name, limit in limits.items() if limit is not None}
        if given:
            _set(session, path, given)


def remove_quotas(session: Session, tree: Tree) -> int:
    """Remove the quotas of set_quotas(), and return how many there were."""
    _check(session)
    removed = 0
    for path in limited(tree):
        place = f"{QUOTAS}{path}"
        if session.exists(f"{place}/{LIMITS}") is not None:
            attempt(session, [Delete(f"{place}/{LIMITS}"), Delete(f"{place}/{STATS}"), Delete(place)])
            removed += 1
    return removed


def _set(session: Session, path: str, given: dict[str, int]) -> None:
    place = f"{QUOTAS}{path}"
    try:
        data, stat = session.get(f"{place}/{LIMITS}")
    except NodeMissing:
        pass
    else:
        attempt(session, [SetData(f"{place}/{LIMITS}", _limits({**_numbers(data), **given}), stat.version)])
        return
    levels = path.split("/")[1:]
    parents = [QUOTAS + "/" + "/".join(levels[:depth]) for depth in range(1, len(levels) + 1)]
    operations: list[Operation] = [Create(each) for each in parents if session.exists(each) is None]
    # ZooKeeper counts the existing znodes when the second of these is created.
    operations += [Create(f"{place}/{LIMITS}", _limits(given)), Create(f"{place}/{STATS}", b"count=0,bytes=0")]
    attempt(session, operations)


def _limits(numbers: dict[str, int]) -> bytes:
    """Encode limits as ZooKeeper's setquota does; the soft ones come first."""
    count, size, bytes_, znodes = (numbers.get(name, -1) for name in ("count", "bytes", *_HARD))
    return f"count={count},bytes={size}=;byteHardLimit={bytes_};countHardLimit={znodes}".encode()


def _numbers(data: bytes) -> dict[str, int]:
    return {name: int(value) for name, value in _NUMBER.findall(data.decode("utf-8", "replace"))}


def _check(session: Session) -> None:
    if "/" in session.config.hosts:
        raise InvalidArgument("quotas are kept outside of the chroot that is part of hosts: connect without it")
