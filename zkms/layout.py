"""The tree's outline: made once, recognised by its version ever after, and brought up to date when nobody is there."""

from __future__ import annotations

import time

import msgspec

from zkms.errors import ConnectionLost, NewerLayout, NodeExists, NodeMissing, StoreError, TransactionFailed
from zkms.operations import Create, SetData
from zkms.session import Session, failed_with
from zkms.tree import LAYOUT, Layout, Tree, decode, encode


def ensure_tree(session: Session, tree: Tree) -> None:
    """Make the root and what stands below it in every tree; refuse one that is newer than we are, or not ours.

    An older one is upgraded, unless clients are connected: they would not know what others write there from now on.
    """
    deadline = time.monotonic() + session.config.connect_timeout
    while True:
        try:
            _ensure_tree(session, tree)
            return
        except ConnectionLost as error:  # each step does nothing where it was done before
            if not error.outcome_unknown or time.monotonic() >= deadline:
                raise


def _refuse_if_used(session: Session, tree: Tree, layout: int) -> None:
    try:
        clients = sorted(session.children(tree.clients)[0])
    except NodeMissing:
        return
    if clients:
        others = f" and {len(clients) - 1:,} more" if len(clients) > 1 else ""
        raise StoreError(
            f"has layout {layout}, and clients that know nothing newer are connected: stop {clients[0]!r}{others}, "
            f"then connect again and it is upgraded to layout {LAYOUT}",
            path=tree.root,
        )


def _ensure_tree(session: Session, tree: Tree) -> None:
    try:
        data, _ = session.get(tree.root)
    except NodeMissing:
        data = b""
    if data:
        try:
            layout = decode(data, Layout).layout
        except msgspec.MsgspecError as error:
            raise StoreError("holds another program's data: choose another root", path=tree.root) from error
        if layout > LAYOUT:
            raise NewerLayout(tree.root, layout, LAYOUT)
        if layout == LAYOUT:
            return
        _refuse_if_used(session, tree, layout)
    levels = tree.root.split("/")[1:]
    parents = ["/" + "/".join(levels[:depth]) for depth in range(1, len(levels) + 1)]
    for path in (*parents, *tree.skeleton):
        try:
            if session.exists(path) is None:
                session.multi([Create(path)])
        except TransactionFailed as error:
            if failed_with(error, NodeMissing) and path == parents[0]:
                hosts = session.config.hosts
                raise StoreError(f"the chroot in hosts={hosts!r} does not exist: create it first") from error
            if not failed_with(error, NodeExists):
                raise error.cause from error
    session.multi([SetData(tree.root, encode(Layout(LAYOUT)))])
