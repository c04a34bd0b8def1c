"""Paths and what is stored at them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkms.tree import paths as trees
from zkms.tree.entry import entry_prefix, parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import (
    MAX_RUNS,
    ClientState,
    GapRecord,
    Layout,
    ProducerState,
    QueueState,
    Record,
    Registration,
    decode,
    encode,
)

RECORDS: list[Record] = [
    Registration("node-1", 10),
    QueueState("node-1"),
    QueueState("node-1", gone="purged", dropped=7, reason="expired", expired=((1, 2), (5, 7))),
    GapRecord("the session expired", full=True),
    ProducerState("node-1", 41, "c1a1"),
    ClientState("host", 4711, "1.2.3", 1.5),
    Layout(1),
]


def test_the_paths_are_those_of_the_drawing() -> None:
    """As in the module's docstring, which users and operators read."""
    tree = Tree("/zkms")
    assert tree.client("c") == "/zkms/clients/c"
    assert tree.topic("t") == "/zkms/subscribers/t"
    assert tree.registration("t", "s") == "/zkms/subscribers/t/s"
    assert tree.full_flag("t", "s") == "/zkms/subscribers/t/s!"
    assert tree.subscription("s") == "/zkms/messages/s"
    assert tree.queue("s", "t") == "/zkms/messages/s/t"
    assert tree.dead_queue("s", "t") == "/zkms/dead/s/t"
    assert tree.producer("p") == "/zkms/producers/p"
    for path in tree.skeleton:
        assert path.removeprefix("/zkms/") in (trees.__doc__ or "")


@given(st.integers(0, 999_999_999), st.integers(0, 999_999_999), st.integers(0, 2**31 - 1), st.booleans())
def test_an_entrys_name_tells_what_is_in_it(count: int, size: int, sequence: int, gap: bool) -> None:
    """Name, count, size and place come back from the name that ZooKeeper completes."""
    name = f"{entry_prefix(count, size, gap=gap)}{sequence:010d}"
    entry = parse_entry(name)
    assert (entry.messages, entry.size, entry.sequence, entry.gap, entry.foreign) == (count, size, sequence, gap, False)
    assert entry.name == name


@given(st.text(max_size=40))
def test_any_other_name_is_foreign(name: str) -> None:
    """Whatever another program calls its znodes."""
    if not name.startswith(("f.", "g.")):
        assert parse_entry(name).foreign


@pytest.mark.parametrize(
    "name",
    [
        *("", "junk", "f.1.10.", "f.1.10.1", "f.1.10.00000000001", "x.1.10.0000000001", "f.-1.10.0000000001"),
        *("f.1.10.0000000001 ", "f.1.10.0000000001\n", "f.1.10.000000000\u0661", "f.9999999999.1.0000000001"),
    ],
)
def test_names_that_only_look_like_ours_are_foreign(name: str) -> None:
    """Ten ASCII digits and nothing after them."""
    assert parse_entry(name).foreign


@given(st.lists(st.sets(st.integers(0, 200), min_size=1), min_size=1, max_size=5))
def test_a_queue_knows_what_has_expired(sweeps: list[set[int]]) -> None:
    """Exactly, up to so many runs; with more, also what lies between the closest."""
    state = QueueState("node-1")
    for numbers in sweeps:
        state = state.expire(sorted(numbers), "expired: late")
    gone = set().union(*sweeps)
    known = {number for first, last in state.expired for number in range(first, last + 1)}
    runs = sum(number - 1 not in gone for number in gone)
    assert known >= gone
    assert len(state.expired) <= MAX_RUNS
    assert (state.dropped, state.reason) == (max(gone), "expired: late")
    if runs <= MAX_RUNS:
        assert (known, len(state.expired)) == (gone, runs)


def test_of_too_many_runs_the_closest_are_joined() -> None:
    """What was not expired then counts as such, so it is as little as can be."""
    far = [100 * number for number in range(MAX_RUNS - 1)]
    state = QueueState("node-1").expire([*far, 10_001, 10_005], "expired")
    assert state.expired == (*((number, number) for number in far), (10_001, 10_005))


def test_entries_sort_by_their_place() -> None:
    """Not by count or size, which come first in the name."""
    names = ["f.9.9.0000000010", "g.0.5.0000000009", "f.1.100.0000000011"]
    assert [entry.sequence for entry in sorted(map(parse_entry, names))] == [9, 10, 11]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_records_come_back_as_they_were(record: Record) -> None:
    """And are JSON, which every ZooKeeper tool can show."""
    raw = encode(record)
    assert decode(raw, type(record)) == record
    assert isinstance(msgspec.json.decode(raw), dict)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_no_record_passes_for_one_of_another_kind(record: Record) -> None:
    """A queue's data copied onto a registration is garbage there."""
    for other in RECORDS:
        if type(other) is not type(record):
            with pytest.raises(msgspec.MsgspecError):
                decode(encode(record), type(other))


@given(st.binary(max_size=100))
def test_garbage_is_a_decode_error_and_nothing_else(raw: bytes) -> None:
    """Whoever reads a record has one exception to catch."""
    for record in RECORDS:
        with pytest.raises(msgspec.MsgspecError):
            decode(raw, type(record))


@pytest.mark.parametrize(
    "raw",
    [b"", b"\xff", b"[]", b"null", b'{"zkms":"gap","reason":"\xff"}', b'{"zkms":"gap","x":' + b"[" * 100_000],
)
def test_garbage_that_msgspec_stumbles_over_is_a_decode_error_too(raw: bytes) -> None:
    """It lets UnicodeDecodeError and RecursionError through."""
    with pytest.raises(msgspec.MsgspecError):
        decode(raw, GapRecord)


@pytest.mark.parametrize("limit", [0, -5, 1.5, "10", None])
def test_a_registration_with_an_impossible_limit_is_garbage(limit: object) -> None:
    """A publisher that took it at its word would find its queue full for ever."""
    raw = msgspec.json.encode({"zkms": "registration", "client": "c", "limit": limit})
    with pytest.raises(msgspec.MsgspecError):
        decode(raw, Registration)


def test_readers_ignore_what_a_newer_version_adds() -> None:
    """So that old and new processes can share a tree."""
    raw = msgspec.json.encode({"zkms": "registration", "client": "c", "limit": 5, "colour": 8})
    assert decode(raw, Registration) == Registration("c", 5)
