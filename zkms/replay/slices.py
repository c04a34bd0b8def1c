"""Entries of a queue read by name, several at a time: what a reader by place, and its trail, look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

from zkms.errors import NodeMissing, Unauthorised
from zkms.tree.entry import Entry, carried, parse_entry
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Check
from zkms.zookeeper.session import Session, Stat

WINDOW = 32
"""Reads that are under way at a time."""
Ask = Callable[[], Future[tuple[bytes, Stat]]]


class Piece(NamedTuple):
    """Messages of one entry: those from `first` up to, and without, `last` whose bits are not set in `done`."""

    path: str
    first: int
    last: int
    done: int


Found = bytes | NodeMissing | Unauthorised
"""What is in an entry, nothing if its body is gone; or why it cannot be read."""


def fetch(session: Session, tree: Tree, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, Entry, Found]]:
    """What is in these entries, in order."""
    for start in range(0, len(pieces), WINDOW):
        some = [(piece, parse_entry(piece.path.rpartition("/")[2])) for piece in pieces[start : start + WINDOW]]
        asks = [_ask(session, tree, piece, entry) for piece, entry in some]
        replies = [None if ask is None else ask() for ask in asks]
        for (piece, entry), ask, reply in zip(some, asks, replies, strict=True):
            try:
                raw = carried(entry.name) if ask is None or reply is None else session.answer(reply, ask)[0]
            except (NodeMissing, Unauthorised):
                yield piece, entry, _look_again(session, tree, piece, entry)
            else:
                yield piece, entry, raw


def _ask(session: Session, tree: Tree, piece: Piece, entry: Entry) -> Ask | None:
    """How to read it; None if its name has it all."""
    return None if entry.carrier else partial(session.get_async, _source(tree, piece, entry))


def _source(tree: Tree, piece: Piece, entry: Entry) -> str:
    return piece.path if entry.body is None else tree.body(*entry.body)


def _look_again(session: Session, tree: Tree, piece: Piece, entry: Entry) -> Found:
    """What is there once the server has caught up, which a transaction makes sure of."""
    try:
        session.multi([Check(tree.messages, -1)])
        return session.get(_source(tree, piece, entry))[0]
    except Unauthorised as error:
        return error
    except NodeMissing as error:
        return b"" if entry.body is not None and session.exists(piece.path) is not None else error
