"""What fuzzing has found, each with the input that did it: none of them does it again."""

from __future__ import annotations

import struct
from pathlib import Path

import msgspec
import pytest

from verification.fuzz.frames import wrapped
from verification.fuzz.wire import MULTI, TEXT
from zkms import CannotDecode, StoreError
from zkms.cli.output import data_json, data_text, safe
from zkms.consume.assignment import MemberLoad, assign
from zkms.consume.entry_state import mask_of
from zkms.message import frame as frames
from zkms.publish.receipt import moved_to
from zkms.replay.stage import Chunk, Job, read_job
from zkms.trail.export.export import Exporter
from zkms.trail.export.reader import Bad, TrailFile
from zkms.tree.delayed_names import parse_delayed
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import Moved, Part, ProducerState, decode, encode
from zkms.zookeeper.operations import Create
from zkms.zookeeper.wire import Children, GetAcl, Multi

TREE = Tree("/zkms")
ENDLESS = struct.pack(">i", -4)
"""A text of -4 bytes: who reads it is where he was before."""


def test_a_name_with_a_thousand_priorities_is_foreign() -> None:
    """It was followed a level of recursion each, and the listing that it was in could never be read."""
    assert parse_entry("p1." * 2000).foreign
    assert parse_entry("p1.x5." * 2000 + "f.1.1.0000000001").foreign
    assert parse_entry("p1.x5.f.1.1.0000000001").priority == 1


@pytest.mark.parametrize("request_", [Children("", "/a"), GetAcl("", "/a")], ids=["children", "acl"])
def test_a_list_of_texts_without_a_length_ends(request_: Children | GetAcl) -> None:
    """A reply of a few bytes that says 2,147,483,647 names of -4 bytes each filled the memory."""
    reply = struct.pack(">i", 2**31 - 1) + ENDLESS * 8
    with pytest.raises(ValueError, match="-4 bytes"):
        request_.read(memoryview(reply), 0)


def test_a_transaction_whose_path_leads_back_ends() -> None:
    """Its reader came back to the same result for ever."""
    place = MULTI.index(TEXT)
    reply = MULTI[:place] + struct.pack(">i", -13) + MULTI[place + 4 :]
    with pytest.raises(ValueError, match="-13 bytes"):
        Multi("", [Create("/a")], b"").read(memoryview(reply), 0)


def test_a_ledger_that_says_more_is_done_than_there_is_costs_no_memory() -> None:
    """It became a number of that many bits."""
    assert mask_of(Part(10**15, "f"), 4) == 0b1111
    assert mask_of(Part(1, "2"), 4) == 0b0101
    assert mask_of(Part(1, "no number"), 4) == 0b0001


@pytest.mark.parametrize("expires", [float("nan"), float("inf"), float("-inf"), 1e300, -1.0])
def test_a_frame_that_expires_at_no_time_is_none(expires: float) -> None:
    """A leader that had to move it, or a dead letter that had to be requeued, failed in rounding it up."""
    body = msgspec.msgpack.encode(["p", 1, 0.0, [1], None, [[None, None, None, expires]]])
    with pytest.raises(CannotDecode, match="malformed"):
        frames.decode(wrapped(body))


@pytest.mark.parametrize("at", [float("nan"), float("inf"), float("-inf"), 1e300, -1.0, frames.LAST_SECOND])
def test_a_frame_of_no_moment_is_none(at: float) -> None:
    """A stream that had to say when it was published failed, and did so again whenever it was started."""
    with pytest.raises(CannotDecode, match="malformed"):
        frames.decode(wrapped(msgspec.msgpack.encode(["p", 1, at, [1]])))


@pytest.mark.parametrize(("seq", "number"), [(2**63, 0), (-1, 0), (1, -1), (2**62, 2**63)])
def test_a_frame_of_no_number_is_none(seq: int, number: int) -> None:
    """A column of 64 bits had no room for the number of its message."""
    with pytest.raises(CannotDecode, match="malformed"):
        frames.decode(wrapped(msgspec.msgpack.encode(["p", seq, 1.0, [1], None, None, [number]])))


@pytest.mark.parametrize("seq", [2**62, -1])
def test_a_producer_whose_next_number_no_frame_can_have_is_none(seq: int) -> None:
    """All that was published from then on could not be read."""
    with pytest.raises(msgspec.ValidationError):
        decode(encode(ProducerState("c", seq)), ProducerState)


@pytest.mark.parametrize("topic", [".", ".."])
def test_a_delayed_frame_of_no_topic_is_none(topic: str) -> None:
    """Its path was refused by ZooKeeper, and with it all that was due at the same time."""
    assert parse_delayed(0, f"d.1.0.k.1.1.1.1.p.{topic}") is None
    assert parse_delayed(0, f"d.1.0.k.1.1.1.1.p.{topic}x") is not None


@pytest.mark.parametrize(
    "path", ["/other/messages/l/t", "/zkms/messages/../t", "/zkms/messages/l", "", "/zkms/messages/l/t/e"]
)
def test_a_record_that_names_another_place_is_not_followed(path: str) -> None:
    """A receipt went wherever it said."""
    assert moved_to(TREE, encode(Moved({"l": path}))) is None
    assert moved_to(TREE, encode(Moved({"l": "/zkms/messages/l/t"}))) is not None


@pytest.mark.parametrize(
    "data",
    [{b"key": 1}, {(1, 2): 3}, msgspec.msgpack.Ext(5, b"x"), {"a": {None: 1}}],
    ids=["bytes", "tuple", "extension", "none"],
)
def test_data_that_json_cannot_hold_are_shown_all_the_same(data: object) -> None:
    """`zkms peek`, `zkms sub` and `zkms dead list` ended with a traceback."""
    assert data_text(data)
    assert msgspec.json.encode(data_json(data))


def test_a_number_of_any_length_is_shown() -> None:
    """Python refuses to write more than 4,300 digits."""
    assert safe(12_345) == "12,345"
    assert safe(10**5000).startswith("0x")


OPENED = {"event": "opened", "t": 1.5, "v": 1, "node": "n", "run": "r"}


@pytest.mark.parametrize(
    "first",
    [
        {**OPENED, "run": "/../../../../tmp/elsewhere"},
        {**OPENED, "t": 1e300},
        {"v": 0},
        {"v": 0, "node": "n", "time": []},
        {"v": 0, "node": 5, "time": 1.5},
        {"v": 0, "node": "n", "time": 1e300},
        {**OPENED, "pid": 2**70},
    ],
    ids=str,
)
def test_a_trail_whose_first_line_is_wrong_is_exported_all_the_same(tmp_path: Path, first: dict[str, object]) -> None:
    """Such files ended the export of all others, or were written wherever their first line said."""
    trail, to = tmp_path / "trail", tmp_path / "deep" / "to"
    trail.mkdir()
    path = trail / "n-1-1.jsonl"
    path.write_bytes(
        msgspec.json.encode(first)
        + b'\n{"event":"gap","i":1,"t":2.0}\n{"event":"gap","t":2.0,"seq":9999999999999999999}\n'
    )
    summary = Exporter(str(to)).run([path])
    assert summary.files == 1
    assert summary.set_aside >= 2  # lines of version 1 are bad in a file that says to be of version 0
    assert {each.name for each in tmp_path.iterdir()} == {"trail", "deep"}
    assert {each.name for each in to.iterdir()} >= {"_exported", "_quarantine"}


@pytest.mark.parametrize("line", [b'{"event":"gap","t":1.0,"x":' + b"[" * 5000, b'{"v":0,"x":' + b"[" * 5000])
def test_a_trail_that_is_nested_deeply_is_bad_lines(tmp_path: Path, line: bytes) -> None:
    """As its first line, and as another."""
    path = tmp_path / "n-1-1.jsonl"
    for text in (line + b"\n", msgspec.json.encode(OPENED) + b"\n" + line + b"\n"):
        path.write_bytes(text)
        assert [type(each) for each in TrailFile(path)].count(Bad) == 1


def test_a_file_with_a_strange_number_in_its_name_is_read(tmp_path: Path) -> None:
    """A superscript is a digit, and no number."""
    path = tmp_path / "n-1-\u00b2.jsonl"
    path.write_bytes(b"junk\n")
    assert TrailFile(path).opened.file == 0


@pytest.mark.parametrize("data", [b"[" * 50_000, b'{"zkms":"staged","run":"\xff"}', b"junk"])
def test_a_job_that_was_overwritten_is_said(data: bytes) -> None:
    """Some of it was let through by the decoder as errors of another kind."""
    with pytest.raises(StoreError, match="overwritten"):
        read_job(data, "/zkms/staged/j")


def test_a_job_that_names_another_place_is_not_followed() -> None:
    """Its parts are znodes below it."""
    with pytest.raises(StoreError, match="overwritten"):
        read_job(msgspec.json.encode(Job(run="r", chunks=[Chunk("../x", 0, "t", 1)])), "/zkms/staged/j")


def test_a_plan_with_partitions_that_there_are_not_gives_each_one_that_there_is_a_member() -> None:
    """A negative number was kept as if it were one of them, and counted as its member's load."""
    assert assign(2, {"a": MemberLoad(), "b": MemberLoad()}, {-1: "a", 0: "a", 7: "b"}) == {0: "a", 1: "b"}
