"""Creates the tree's top levels, checks the layout's version, and upgrades an old layout if no client is connected."""

from __future__ import annotations

import time

import msgspec

from zkms.errors import (
    BadVersion,
    ConnectionLost,
    InvalidArgument,
    NewerLayout,
    NodeMissing,
    StoreError,
    TransactionFailed,
    Unauthorised,
)
from zkms.security import Access
from zkms.tree.acl import Rights
from zkms.tree.paths import LAYOUT, Tree
from zkms.tree.records import Layout, decode, encode
from zkms.zookeeper.operations import SetData
from zkms.zookeeper.recipes import children_of, create_if_missing, read_many
from zkms.zookeeper.session import AclPolicy, Session, failed_with


def ensure_tree(session: Session, tree: Tree) -> None:
    """Create ROOT and its fixed children; refuse a tree of a newer layout, or of another program.

    An older layout is upgraded, unless clients are connected: they would not understand the new one.
    """
    deadline = time.monotonic() + session.config.connect_timeout
    while True:
        try:
            _ensure_tree(session, tree)
            return
        except ConnectionLost as error:  # each step can be repeated
            if not error.outcome_unknown or time.monotonic() >= deadline:
                raise
        except TransactionFailed as error:  # another client has made it meanwhile, perhaps with another policy
            if not failed_with(error, BadVersion, path=tree.root) or time.monotonic() >= deadline:
                raise error.cause from error


def _refuse_if_used(session: Session, tree: Tree, layout: int) -> None:
    clients = children_of(session, tree.clients)
    if clients:
        others = f" and {len(clients) - 1:,} more" if len(clients) > 1 else ""
        raise StoreError(
            f"has layout {layout}, and clients that know nothing newer are connected: stop {clients[0]!r}{others}, "
            f"then connect again and it is upgraded to layout {LAYOUT}",
            path=tree.root,
        )


def _ensure_tree(session: Session, tree: Tree) -> None:
    version = 0
    try:
        data, stat = session.get(tree.root)
        version = stat.version
    except NodeMissing:
        data = b""
    if data:
        found = _decode(data, tree.root)
        if found.layout > LAYOUT:
            raise NewerLayout(tree.root, found.layout, LAYOUT)
        _adopt(session, tree, found)
        if found.layout == LAYOUT:
            return
        _refuse_if_used(session, tree, found.layout)
    elif session.config.access is not None:
        _follow(session, tree, session.config.access)
        if session.rights is None or not session.rights.cleans:
            raise Unauthorised(
                "is not made yet, and one of its cleaners has to make it: start that first", path=tree.root
            )
        _refuse_strangers(session, tree)  # before anything is created there, and again afterwards
    levels = tree.root.split("/")[1:]
    parents = ["/" + "/".join(levels[:depth]) for depth in range(1, len(levels) + 1)]
    for path in (*parents, *_outline(session, tree)[1:]):
        try:
            create_if_missing(session, path)
        except NodeMissing as error:
            if path != parents[0]:
                raise
            hosts = session.config.hosts
            raise StoreError(f"the chroot in hosts={hosts!r} does not exist: create it first") from error
    _refuse_strangers(session, tree)
    policy = None if session.rights is None else session.rights.access.record()
    session.multi([SetData(tree.root, encode(Layout(LAYOUT, policy)), version)])


def _outline(session: Session, tree: Tree) -> tuple[str, ...]:
    """Return ROOT and its fixed children."""
    # With a policy only cleaners may create below ROOT, so `staged` must exist.
    return (tree.root, *tree.skeleton, *((tree.staged,) if session.rights else ()))


def strangers(session: Session, tree: Tree, rights: AclPolicy) -> dict[str, str]:
    """Return the fixed znodes whose ACLs differ from the policy, each with the difference.

    Clients that are no cleaners see fewer znodes, and digests without their hashes.
    """
    faults: dict[str, str] = {}

    def failed(path: str, error: StoreError) -> None:
        if not isinstance(error, Unauthorised):
            raise error
        if rights.cleans:
            faults[path] = "its cleaners may not even look at its ACL"

    for path, (found, stat) in read_many(session, _outline(session, tree), session.acl_async, failed).items():
        differing = rights.differing(path, found)
        if differing:
            faults[path] = f"the rights there of {', '.join(differing)} are not those of the policy"
        elif stat.aversion:  # a client with rights before the change may have created something below it
            faults[path] = "its ACL was changed after it was made"
    return faults


def _refuse_strangers(session: Session, tree: Tree) -> None:
    """If `access` is given, refuse a tree whose fixed znodes somebody else created with other rights."""
    if session.config.access is None or session.rights is None:
        return
    for path, fault in strangers(session, tree, session.rights).items():
        raise InvalidArgument(
            f"{path} was not made for these roles: {fault}. Have {tree.root} removed with all that is in it, "
            "or choose another root"
        )


def adopt_policy(session: Session, tree: Tree) -> None:
    """Follow the policy of a tree, if it has one that can be read: for clients that only read."""
    try:
        data, _ = session.get(tree.root)
        _adopt(session, tree, decode(data, Layout))
    except (NodeMissing, Unauthorised, msgspec.MsgspecError):
        return


def _decode(data: bytes, root: str) -> Layout:
    try:
        return decode(data, Layout)
    except msgspec.MsgspecError as error:
        raise StoreError("holds another program's data: choose another root", path=root) from error


def _adopt(session: Session, tree: Tree, found: Layout) -> None:
    """Follow the stored policy; refuse it if `access` was given and differs."""
    given = session.config.access
    if found.access is None:
        if given is not None:
            raise InvalidArgument(
                f"{tree.root} was made without access=, and all that is in it has other ACLs: choose another root"
            )
        return
    try:
        policy = Access(**{str(role): tuple(found.access[role]) for role in ("producers", "subscribers", "cleaners")})
    except (InvalidArgument, KeyError) as error:
        raise StoreError(f"the policy it was made with cannot be read: {error}", path=tree.root) from error
    if given is not None and given != policy:
        raise InvalidArgument(f"{tree.root} was made with {policy!r}, and access= says otherwise: {given!r}")
    _follow(session, tree, policy)
    _refuse_strangers(session, tree)


def _follow(session: Session, tree: Tree, access: Access) -> None:
    if session.rights is None or session.rights.access != access:
        session.adopt(Rights(access, tree.root, session.identities()))
