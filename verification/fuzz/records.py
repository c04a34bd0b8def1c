"""Fuzzes the data of znodes: every reader in zkms handles whatever another program has written."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stdout
from typing import Any

import msgspec
from zkms_cleaner.orphans import _owner

from verification.fuzz.target import Target
from zkms.admin.dead_letters import DeadLetterPlace, _describe
from zkms.admin.discovery import _queue
from zkms.admin.lag import _delayed, unacked_messages
from zkms.cli.output import clock, duration, print_json, print_table
from zkms.consume.assignment import MemberLoad, assign, slow_ones
from zkms.consume.entry_state import EntryState
from zkms.consume.planner import read_plan
from zkms.deliver.inbox import Fetched
from zkms.errors import StoreError
from zkms.message.frame import Frame, pack
from zkms.names import is_pattern, matches
from zkms.publish.audience import Member, patterns_in, route
from zkms.publish.limits import Room
from zkms.publish.receipt import moved_to, removal
from zkms.replay.stage import Chunk, Job, Staged, read_job
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree, queues_of
from zkms.tree.records import (
    ClientState,
    DeadLetter,
    GapRecord,
    GroupPlan,
    IdRecord,
    Layout,
    Ledger,
    MemberState,
    Moved,
    Part,
    Patterns,
    ProducerState,
    QueueState,
    Record,
    Registration,
    Try,
    decode,
    decode_or_none,
    encode,
)
from zkms.zookeeper.wire import Stat

KINDS: tuple[type[Any], ...] = (
    *(Registration, QueueState, Ledger, GroupPlan, MemberState, Patterns, Moved, DeadLetter, IdRecord, GapRecord),
    *(ProducerState, ClientState, Layout),
)
STAT = Stat(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
TREE = Tree("/zkms")
FETCHED = Fetched(parse_entry("f.4.10.0000000007"), "/zkms/messages/l/t/f.4.10.0000000007", b"")
FRAME = Frame("p", 1, 0.0, [1, 2, 3, 4])
EXAMPLES: tuple[Record, ...] = (
    Registration("c", 10, "group", partitions=4, where={"kind": ["new"]}, max_age=5.0),
    QueueState("c", "purged", 7, "dropped", ((1, 2), (5, 7))),
    Ledger("c", "ab12", 3, {7: Part(2, "5", {3: Try(2, 1.5, "why")})}),
    GroupPlan({0: "c", 1: "d"}),
    MemberState("host", 7, 1, 2, 3, True, 0.25, {0: 2}),
    Patterns(("users.*", "users.>")),
    Moved({"live": "/zkms/messages/live/users"}, {"gone": "its queue is full"}),
    DeadLetter(b"zkms\x01\0\0\0", "why", 1.5, 3, "error"),
    IdRecord("p", 7),
    GapRecord("why", True),
    ProducerState("c", 7, "ab12"),
    ClientState("host", 7, "0.1", 1.5),
    Layout(2),
)


def check(data: bytes) -> None:
    """Decode the data as each kind of record, and use the result."""
    for kind in KINDS:
        try:
            record = decode(data, kind)
        except msgspec.MsgspecError:
            continue
        assert decode(encode(record), kind) == record
        use = USES.get(kind)
        if use is not None:
            use(record, data)
        _show(record)
    assert isinstance(removal(data, "/q/f.1.1.0000000007"), str | None)
    assert isinstance(_owner(data), str)
    assert isinstance(_describe(DeadLetterPlace("l", "t", "d.1.9.0000000001"), data, 1.0).foreign, bool)
    assert _queue("l#1", "t", data, STAT, (data, STAT)).entries == 1
    assert decode_or_none(data, GroupPlan) is None or read_plan(data) == decode_or_none(data, GroupPlan)


def _show(record: Any) -> None:
    """As the commands print them: tables, JSON, times."""
    values = [getattr(record, name) for name in record.__struct_fields__]
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(printed):
        print_table([str(number) for number in range(len(values))], [values], empty="")
        print_json([msgspec.to_builtins(record)])
    printed.flush()
    assert b"\x1b" not in printed.buffer.getvalue()
    for value in values:
        if isinstance(value, float):
            assert clock(value)
            assert duration(value)


def _use_registration(record: Registration, _data: bytes) -> None:
    lanes = queues_of("l", record)
    assert 1 <= len(lanes) <= 1024
    packed = [pack(1, "k", {"kind": "new"}), pack(2)]
    for target in route([Member("l", record, topic="t")], packed, 3, frozenset()):
        assert target.queue[0] in lanes
    room = Room(record.limit, record.max_bytes, 10)
    assert room.less(Room(1, 1, 1)).budget(Room(1, 1, 1))


def _use_ledger(record: Ledger, _data: bytes) -> None:
    entries = [parse_entry(f"f.4.10.{number:010}") for number in range(10)]
    assert unacked_messages(entries, record.parts) >= 0
    assert _delayed(entries, record.parts, time.time()) >= 0
    for part in record.parts.values():
        assert part.count >= 0
        state = EntryState(_Dispatcher(), FRAME, FETCHED, part)  # type: ignore[arg-type]
        assert state.done < 16
        for index in range(4):
            assert state.expires(index) == 0.0
            assert state.attempts(index) >= 1
        assert decode(encode(Ledger(parts={7: state.snapshot()[0] or Part()})), Ledger)
        for tried in part.tries.values():
            assert 0 <= min(0.5 * 2 ** (min(tried.attempts, 64) - 1), 3600.0) <= 3600.0


class _Dispatcher:
    topic = "t"
    lost = None


def _use_plan(record: GroupPlan, _data: bytes) -> None:
    plan = assign(4, {"c": MemberLoad(), "d": MemberLoad(slow=True)}, record.lanes)
    assert sorted(plan) == [0, 1, 2, 3]


def _use_member(record: MemberState, _data: bytes) -> None:
    slow_ones({"a": record.pace, "b": 0.1, "c": 0.2})


def _use_patterns(record: Patterns, data: bytes) -> None:
    assert set(patterns_in(data)) == set(filter(is_pattern, record.patterns))
    for pattern in record.patterns:
        if matches(pattern, "users.one"):
            assert "/" not in pattern


def _use_moved(_record: Moved, data: bytes) -> None:
    moved = moved_to(TREE, data)
    for path in moved.queues.values() if moved is not None else ():
        assert path.startswith("/zkms/messages/")
        assert not {"", ".", ".."} & set(path[1:].split("/"))
        assert path.count("/") == 4


USES: dict[Any, Any] = {
    Registration: _use_registration,
    Ledger: _use_ledger,
    GroupPlan: _use_plan,
    MemberState: _use_member,
    Patterns: _use_patterns,
    Moved: _use_moved,
}


def check_job(data: bytes) -> None:
    """What a staged job's znode says, and the chunks below it."""
    try:
        job = read_job(data, "/zkms/staged/j")
    except StoreError:
        pass
    else:
        assert isinstance(job.total, int)
        for chunk in job.chunks:
            assert "/" not in chunk.part
            assert chunk.part not in ("", ".", "..")
    try:
        rows = msgspec.msgpack.decode(data, type=list[Staged])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    for row in rows:
        pack(row.data, row.key, row.headers)


TARGETS = (
    Target(
        "znode data",
        check,
        tuple(encode(example) for example in EXAMPLES),
        (
            *tuple(f'"{name}"'.encode() for example in EXAMPLES for name in example.__struct_fields__),
            b'"zkms":',
            b"\\u001b",
            b"\\ud800",
            b"[" * 1500,
            b'"\xff"',
            b'"../../x"',
            b"-9223372036854775809",
        ),
        weight=0.5,
    ),
    Target(
        "staged jobs",
        check_job,
        (
            msgspec.json.encode(Job(1, 2, "run-1", 2, [Chunk("part-1", 0, "users", 5)], 3, 9)),
            msgspec.msgpack.encode([Staged({"a": 1}, "k", {"h": "v"}), Staged(b"x")]),
            b"",
        ),
        (b'"chunks":', b'"../x"', b'"zkms":"staged"', b"[" * 1500),
    ),
)
