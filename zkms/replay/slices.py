"""Reads entries of a queue by name, several at a time: what a reader by place, and its trail, look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zkms.errors import NodeMissing, StoreError, Unauthorised
from zkms.tree.entry import Entry, carried, parse_entry
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Check
from zkms.zookeeper.recipes import read_many
from zkms.zookeeper.session import Session

WINDOW = 32
"""Reads that are under way at a time."""


class Slice(NamedTuple):
    """Messages of one entry: those from `first` up to, and without, `last` whose bits are not set in `done`."""

    path: str
    first: int
    last: int
    done: int


Found = bytes | NodeMissing | Unauthorised
"""What is in an entry, nothing if its body is gone; or why it cannot be read."""


def read_slices(session: Session, tree: Tree, slices: Sequence[Slice]) -> Iterator[tuple[Slice, Entry, Found]]:
    """What is in the entries of these slices, in order; some are read at a time."""

    def refused(_slice: Slice, error: StoreError) -> None:
        if not isinstance(error, Unauthorised):
            raise error

    for start in range(0, len(slices), WINDOW):
        some = {each: parse_entry(each.path.rpartition("/")[2]) for each in slices[start : start + WINDOW]}
        wanted = {each: _source(tree, each, entry) for each, entry in some.items() if not entry.carrier}
        read = read_many(session, wanted, lambda each: session.get_async(wanted[each]), refused)  # noqa: B023 - used now
        for each, entry in some.items():
            if entry.carrier:
                yield each, entry, carried(entry.name)
            else:
                yield each, entry, read[each][0] if each in read else _read_again(session, tree, each, entry)


def _source(tree: Tree, each: Slice, entry: Entry) -> str:
    return each.path if entry.body is None else tree.body(*entry.body)


def _read_again(session: Session, tree: Tree, each: Slice, entry: Entry) -> Found:
    """What is there once the server has caught up, which a transaction makes sure of."""
    try:
        session.multi([Check(tree.messages, -1)])
        return session.get(_source(tree, each, entry))[0]
    except Unauthorised as error:
        return error
    except NodeMissing as error:
        return b"" if entry.body is not None and session.exists(each.path) is not None else error
