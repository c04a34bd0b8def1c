"""The recorder: what it writes, what it costs, and what it says of lines that it could not keep."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from tests.support.trails import read
from zkms.errors import InvalidArgument
from zkms.testing import expire
from zkms.trail import Trail, line_count
from zkms.trail.event import Event, key_hash
from zkms.trail.recorder import FileRecorder
from zkms.trail.store import line_count_of


def of(events: list[Event], *names: str) -> list[Event]:
    """Those that tell of these happenings."""
    return [event for event in events if event.event in names]


def test_a_messages_life_is_recorded(connect: Connect, trail: Path) -> None:
    """From the subscription to its end, with numbers, keys, ids and both clocks."""
    before = time.time()
    bus = connect(client_id="ann")
    subscription = bus.subscribe("users")
    bus.publish("users", 1, key="42", id="mine")
    assert subscription.get(timeout=20.0) is not None
    bus.close()
    events = read(trail)
    assert [event.event for event in events] == [
        *("opened", "session", "subscribed", "published", "delivered", "acked", "unsubscribed", "session", "closed")
    ]
    published, delivered, acked = of(events, "published", "delivered", "acked")
    assert (published.producer, published.seq, published.n, published.subs) == ("ann", 1, 1, [subscription.id])
    assert (published.keys, published.ids) == ([key_hash("42")], ["mine"])
    assert published.zxid
    for event in (delivered, acked):
        assert (event.sub, event.topic, event.kind) == (subscription.id, "users", "live")
        assert (event.producer, event.seq, event.n) == ("ann", 1, 1)
    assert delivered.at == published.at
    assert delivered.size == published.size
    assert [event.i for event in events[1:-1]] == list(range(1, 8))
    assert all(before <= event.t <= time.time() and event.m is not None for event in events)
    assert [event.state for event in of(events, "session")] == ["connected", "closed"]
    assert (events[-1].lines, events[-1].lost) == (9, 0)


def test_many_messages_are_few_lines(connect: Connect, trail: Path) -> None:
    """A frame is one line however many messages it holds, and the ranges cover each message once."""
    bus = connect()
    subscription = bus.subscribe("users")
    bus.publish_many("users", range(5000))
    got = 0
    while got < 5000:
        messages = subscription.fetch(1000, timeout=20.0)
        assert messages
        got += len(messages)
    bus.close()
    events = read(trail)
    for name in ("published", "delivered", "acked"):
        ranges = of(events, name)
        assert len(ranges) < 500
        assert sorted(seq for e in ranges for seq in range(e.seq or 0, (e.seq or 0) + (e.n or 0))) == [*range(1, 5001)]
    assert all(event.keys is None for event in events), "messages without keys need no list of them"


def test_an_expired_session_and_its_gap_are_recorded(connect: Connect, trail: Path, eventually: Eventually) -> None:
    """Whoever reads the trail knows as much as the subscriber."""
    bus = connect()
    gaps: list[object] = []
    bus.subscribe("users", lambda _message: None, on_gap=gaps.append)
    expire(bus)
    eventually(lambda: gaps)
    bus.close()
    events = read(trail)
    assert "expired" in [event.state for event in of(events, "session")]
    assert len(of(events, "gap")) == 1
    assert "expired" in str(of(events, "gap")[0].reason)


def test_a_subscription_that_gets_a_new_queue_is_a_new_one(
    connect: Connect, trail: Path, eventually: Eventually
) -> None:
    """The old id ends and the new one begins, or the audit would look for messages that nobody can get."""
    bus = connect(client_id="ann")
    subscription = bus.subscribe("users", lambda _message: None)
    old = subscription.id
    bus.parts.live_registration._leave("users", old)  # as somebody with a hammer would
    eventually(lambda: subscription.id != old)
    bus.close()
    events = of(read(trail), "subscribed", "unsubscribed")
    assert [(event.event, event.sub) for event in events[:3]] == [
        *(("subscribed", old), ("unsubscribed", old), ("subscribed", subscription.id))
    ]


def test_what_cannot_be_decoded_is_recorded_as_dead(connect: Connect, trail: Path, eventually: Eventually) -> None:
    """A message that is not of the type: set aside by its number, while the rest of its frame is delivered."""
    bus = connect()
    errors: list[object] = []
    got: list[object] = []
    bus.subscribe(
        "users", lambda m: got.append(m.data), type=int, on_error=lambda error, _message: errors.append(error)
    )
    bus.publish_many("users", [1, "two", 3])
    eventually(lambda: errors and 3 in got)
    bus.close()
    events = read(trail)
    assert [(event.seq, event.n) for event in of(events, "dead")] == [(2, 1)]
    assert [(event.seq, event.n) for event in of(events, "delivered")] == [(1, 3)]


def test_a_full_queue_loses_lines_and_counts_them(trail: Path) -> None:
    """Nothing waits for the disk: what is too much is lost, and the trail says how much since when."""
    recorder = FileRecorder(Trail(directory=trail, queue=10, flush=3600.0), "ann")
    before = time.time()
    for _ in range(100):
        recorder.note("gap", sub="a", topic="users")
    assert recorder.lost == 90
    recorder.close()
    events = read(trail)
    assert len(of(events, "gap")) == 10
    (lost,) = of(events, "lost")
    assert lost.n == 90
    assert lost.at is not None
    assert before <= lost.at <= lost.t
    assert lost.i == 101, "the numbers of the lines show the hole too"
    assert events[-1].lost == 90


def test_a_disk_that_refuses_loses_lines_and_counts_them(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk; when there is room again the trail goes on."""
    program = """
        import resource, sys, time
        from zkms.trail import Trail
        from zkms.trail.recorder import FileRecorder

        recorder = FileRecorder(Trail(directory=sys.argv[1], flush=0.01), "ann")
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        deadline = time.monotonic() + 60
        while not recorder.lost and time.monotonic() < deadline:
            recorder.note("gap", sub="a", topic="users", reason="x" * 50)
            time.sleep(0.001)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        recorder.note("gap", sub="a", topic="users", reason="room again")
        recorder.close()
        print(recorder.lost)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "trail")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    events = read(tmp_path / "trail")
    assert of(events, "gap")[-1].reason == "room again"
    assert sum(event.n or 0 for event in of(events, "lost")) == int(result.stdout) > 0
    assert events[-1].lost == int(result.stdout)


def test_files_are_finished_when_they_are_large_or_old(trail: Path, eventually: Eventually) -> None:
    """Each with its last line, under its final name; lines are numbered through all of them."""
    recorder = FileRecorder(Trail(directory=trail, flush=0.01, file_bytes=2000, file_seconds=0.5), "ann")

    def finished() -> int:
        return len([*trail.glob("*.jsonl")])

    recorder.note("gap", sub="a", topic="users", reason="old")
    eventually(lambda: finished() == 1, what="a file that is finished by its age")
    recorder.note("gap", sub="a", topic="users", reason="x" * 2000)
    eventually(lambda: finished() >= 2, what="a file that is finished by its size")
    recorder.close()
    files = sorted(trail.iterdir())
    assert all(file.suffix == ".jsonl" for file in files), "nothing open is left, and no line count"
    for number, file in enumerate(files, 1):
        events = read(file)
        assert (events[0].event, events[0].file, events[-1].event) == ("opened", number, "closed")
        assert events[-1].lines == len(events)
    assert [event.i for event in of(read(trail), "gap")] == [1, 2]


def test_an_idle_process_does_not_make_files(trail: Path) -> None:
    """A file with nothing in it is not old."""
    recorder = FileRecorder(Trail(directory=trail, flush=0.001, file_seconds=0.01), "ann")
    time.sleep(0.2)
    recorder.close()
    assert len([*trail.iterdir()]) == 1


def test_the_directory_is_kept_within_its_bound(trail: Path, eventually: Eventually) -> None:
    """The oldest finished files go, whosever they are; the trail says which, and how many lines they had."""
    other = FileRecorder(Trail(directory=trail), "bob")
    other.note("gap", sub="b", topic="users", reason="x" * 3000)
    other.close()
    (first,) = trail.glob("bob-*.jsonl")
    os.utime(first, (1.0, 1.0))
    recorder = FileRecorder(Trail(directory=trail, flush=0.01, file_bytes=1000, total_bytes=5000), "ann")
    for number in range(8):
        recorder.note("gap", sub="a", topic="users", reason=f"{number}" + "x" * 1000)
        eventually(lambda number=number: recorder._store._number > number + 1, what="the next file")
    recorder.close()
    assert not first.exists()
    assert sum(path.stat().st_size for path in trail.iterdir()) < 5000 + 2500
    events = read(trail)
    removed = {event.of for event in of(events, "lost")}
    assert events[0].removed
    assert any("removed" in str(event.reason) and event.n for event in of(events, "lost")), removed


def test_the_bound_spares_what_another_process_writes_to(trail: Path, eventually: Eventually) -> None:
    """An open file of a living process is never removed."""
    other = FileRecorder(Trail(directory=trail, flush=0.01), "bob")
    other.note("gap", sub="b", topic="users", reason="x" * 5000)
    eventually(lambda: other._store.path.stat().st_size > 5000)
    os.utime(other._store.path, (1.0, 1.0))
    recorder = FileRecorder(Trail(directory=trail, flush=0.01, file_bytes=1000, total_bytes=1000), "ann")
    recorder.note("gap", sub="a", topic="users", reason="x" * 1000)
    eventually(lambda: recorder._store._number > 1, what="the next file")
    recorder.close()
    other.close()
    assert len(of(read(trail), "gap")) >= 1
    assert any(event.sub == "b" for event in of(read(trail), "gap"))


def test_a_kill_loses_the_last_batch_and_the_number_of_lines_is_known(tmp_path: Path) -> None:
    """The file holds whole lines up to the last write, and the line count how many there should be."""
    program = """
        import sys
        from zkms.trail import Trail
        from zkms.trail.recorder import FileRecorder

        recorder = FileRecorder(Trail(directory=sys.argv[1], flush=0.05), "ann")
        for number in range(1, 10**9):
            recorder.note("gap", sub="a", topic="users", reason=str(number))
            if number % 1000 == 0:
                print(number, flush=True)
    """
    trail = tmp_path / "trail"
    command = [sys.executable, "-c", textwrap.dedent(program), str(trail)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = 0
        while not (trail.exists() and any(p.stat().st_size > 10_000 for p in trail.glob("*.open"))):
            said = int(process.stdout.readline())
        assert line_count.is_alive(line_count_of(next(trail.glob("*.open"))))
        process.send_signal(signal.SIGKILL)
        process.wait()
    (path,) = trail.glob("*.open")
    assert not line_count.is_alive(line_count_of(path))
    given = line_count.read(line_count_of(path))
    assert given is not None
    assert given.lines >= said
    lines = path.read_bytes().split(b"\n")
    numbers = [event.i for event in (_decode(line) for line in lines[1:-1]) if event.event == "gap"]
    assert numbers == sorted(numbers)
    assert 0 < numbers[-1] <= given.lines
    last = next(event.t for event in (_decode(line) for line in reversed(lines[1:-1])))
    assert given.last is not None
    assert last <= given.last < last + 60


@pytest.mark.parametrize("kind", ["exits", "forks"])
def test_a_process_that_just_ends_leaves_a_finished_file(tmp_path: Path, kind: str) -> None:
    """Without close(); and a child that it forked does not finish the file in its place."""
    program = """
        import os, sys
        from zkms.trail import Trail
        from zkms.trail.recorder import FileRecorder

        recorder = FileRecorder(Trail(directory=sys.argv[1], flush=0.01), "ann")
        recorder.note("gap", sub="a", topic="users")
        if sys.argv[2] == "forks":
            child = os.fork()
            if child == 0:
                sys.exit(0)
            os.waitpid(child, 0)
        recorder.note("gap", sub="a", topic="users")
    """
    trail = tmp_path / "trail"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(trail), kind], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    (path,) = trail.iterdir()
    assert [event.event for event in read(path)] == ["opened", "gap", "gap", "closed"]


def _decode(line: bytes) -> Event:
    import msgspec

    return msgspec.json.decode(line, type=Event)


@pytest.mark.parametrize("kind", ["a file", "nothing", "a number"])
def test_a_trail_that_cannot_be_written_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    """Before anything is sent, with the directory in the sentence."""
    (tmp_path / "file").write_text("")
    given: object = {"a file": tmp_path / "file", "nothing": "", "a number": 7}[kind]
    with pytest.raises(InvalidArgument, match="trail: "):
        zkms.connect("127.0.0.1:1", connect_timeout=0.1, trail=given)  # type: ignore[arg-type]


def test_nodes_of_one_name_do_not_share_a_file(trail: Path) -> None:
    """Even if they start at the same moment."""
    recorders = [FileRecorder(Trail(directory=trail), "ann") for _ in range(20)]
    for recorder in recorders:
        recorder.close()
    assert len([*trail.glob("*.jsonl")]) == 20
    assert len({event.run for event in of(read(trail), "opened")}) == 20


def test_names_that_no_file_can_have_are_recorded_all_the_same(trail: Path) -> None:
    """A client id may be long, begin with a dot and hold what shells take for themselves."""
    name = ".ann of *" + "\u00e9" * 100
    FileRecorder(Trail(directory=trail), name).close()
    assert [event.node for event in of(read(trail), "opened")] == [name]
