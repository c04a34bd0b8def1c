"""Reads entries of a queue by name, several at a time, for the cursor's readers and for its trail."""

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
"""The most reads in flight."""


class Slice(NamedTuple):
    """Messages of one entry: from `first` to before `last`, without those whose bits are set in `done`."""

    path: str
    first: int
    last: int
    done: int


Found = bytes | NodeMissing | Unauthorised
"""The frame of an entry, b"" if its body is missing; or why it cannot be read."""


def read_slices(session: Session, tree: Tree, slices: Sequence[Slice]) -> Iterator[tuple[Slice, Entry, Found]]:
    """Yield the entries of these slices with their frames, in order; `WINDOW` of them are read at a time."""

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
    """Read an entry after a transaction, which makes sure that the server is up to date."""
    try:
        session.multi([Check(tree.messages, -1)])
        return session.get(_source(tree, each, entry))[0]
    except Unauthorised as error:
        return error
    except NodeMissing as error:
        return b"" if entry.body is not None and session.exists(each.path) is not None else error
