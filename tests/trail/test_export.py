"""The export: every event once, whatever is damaged or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support.buses import Eventually
from zkms.cli.exit_codes import Exit
from zkms.errors import ZkmsError
from zkms.trail import Trail
from zkms.trail.event import COLUMNS, VERSION
from zkms.trail.export.export import Exporter, ExportSummary, NothingRecorded, find
from zkms.trail.recorder import FileRecorder


def record(trail: Path, node: str = "ann", count: int = 10, **options: Any) -> Path:
    """A finished file with so many events; returns it."""
    before = set(trail.glob("*.jsonl"))
    recorder = FileRecorder(Trail(directory=trail, **options), node)
    for number in range(count):
        recorder.note("delivered", sub="a", topic="users", kind="live", producer="p", seq=number + 1, n=1)
    recorder.close()
    (path,) = set(trail.glob("*.jsonl")) - before
    return path


def export(trail: Path, to: Path) -> ExportSummary:
    """As `zkms trail export` does."""
    return Exporter(str(to)).run(find([trail]))


def rows(to: Path) -> list[dict[str, Any]]:
    """All rows, in the order of their process."""
    found = [row for path in to.glob("date=*/hour=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(found, key=lambda row: (row["source"], row["event"] == "closed", row["t"], row["i"]))


def command(*args: str) -> subprocess.CompletedProcess[str]:
    """`zkms trail export` as a process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ZKMS_")}
    return subprocess.run(
        [sys.executable, "-m", "zkms", "trail", "export", *args], env=clean, capture_output=True, text=True, timeout=90
    )


def test_events_become_rows_with_whose_they_are(trail: Path, tmp_path: Path) -> None:
    """Every row has all columns, and knows its node and file; directories are the date and hour in UTC."""
    path = record(trail)
    summary = export(trail, tmp_path / "out")
    assert (summary.files, summary.rows, summary.lost) == (1, 12, 0)
    (part,) = (tmp_path / "out").glob("date=*/hour=*/*.parquet")
    assert pq.ParquetFile(part).schema_arrow.names == [*COLUMNS]
    found = rows(tmp_path / "out")
    assert [row["event"] for row in found if row["event"] != "delivered"] == ["opened", "closed"]
    delivered = [row for row in found if row["event"] == "delivered"]
    assert [row["seq"] for row in delivered] == [*range(1, 11)]
    assert {(row["node"], row["source"], row["pid"]) for row in found} == {("ann", path.stem, os.getpid())}
    moment = time.gmtime(found[0]["t"])
    assert part.parent.name == f"hour={moment.tm_hour:02}"
    assert part.parent.parent.name == time.strftime("date=%Y-%m-%d", moment)


def test_a_file_is_exported_once(trail: Path, tmp_path: Path) -> None:
    """Running again does nothing; a new file is added."""
    record(trail)
    export(trail, tmp_path / "out")
    again = export(trail, tmp_path / "out")
    assert (again.files, again.earlier) == (0, 1)
    record(trail, node="bob")
    assert export(trail, tmp_path / "out").files == 1
    assert len([row for row in rows(tmp_path / "out") if row["event"] == "delivered"]) == 20


def test_rows_of_different_hours_go_to_their_directories(trail: Path, tmp_path: Path) -> None:
    """A process that runs past the hour, or whose clock jumps, has a part in each."""
    path = record(trail)
    lines = path.read_bytes().splitlines(keepends=True)
    for number in (3, 4):
        event = msgspec.json.decode(lines[number])
        lines[number] = msgspec.json.encode(event | {"t": event["t"] + 7200}) + b"\n"
    path.write_bytes(b"".join(lines))
    export(trail, tmp_path / "out")
    parts = [*(tmp_path / "out").glob("date=*/hour=*/*.parquet")]
    assert sorted(pq.ParquetFile(part).metadata.num_rows for part in parts) == [2, 10]


def test_open_files_of_the_living_wait_and_those_of_the_dead_do_not(
    trail: Path, tmp_path: Path, eventually: Eventually
) -> None:
    """A killed process's file ends with an unclean row that says how many lines went with it."""
    program = """
        import sys, time
        from zkms.trail import Trail
        from zkms.trail.recorder import FileRecorder

        recorder = FileRecorder(Trail(directory=sys.argv[1], flush=0.01), "ann")
        recorder.note("gap", sub="a", topic="users")
        while recorder._store._lines < 2:
            time.sleep(0.01)
        recorder._trail = Trail(directory=sys.argv[1], flush=3600)  # so that the next ones are not written
        for _ in range(3):
            recorder.note("gap", sub="a", topic="users")
        print("ready", flush=True)
        time.sleep(3600)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(trail)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        alive = export(trail, tmp_path / "out")
        assert (alive.files, alive.open) == (0, 1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    dead = export(trail, tmp_path / "out")
    assert (dead.files, dead.unclean) == (1, 1)
    last = rows(tmp_path / "out")[-1]
    written = len([row for row in rows(tmp_path / "out") if row["event"] == "gap"])
    assert (last["event"], last["reason"]) == ("closed", "unclean")
    assert (last["n"], last["lost"]) == (4 - written, 4 - written)
    assert dead.lost == 4 - written


@pytest.mark.parametrize("cut", [0, 1, 40])
def test_half_a_file_is_kept_as_far_as_it_goes(trail: Path, tmp_path: Path, cut: int) -> None:
    """Cut anywhere: whole lines are kept, a half one is set aside, and the end is unclean."""
    path = record(trail)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:6]) + lines[6][:cut])
    summary = export(trail, tmp_path / "out")
    found = rows(tmp_path / "out")
    assert len([row for row in found if row["event"] == "delivered"]) == 5
    assert found[-1]["reason"] == "unclean"
    assert summary.set_aside == (1 if cut else 0)


BAD = {
    "not JSON": (b'{"event":\n', "no event"),
    "not an event": (b'{"hello":1}\n', "no event"),
    "of wrong types": (b'{"event":"gap","t":"noon"}\n', "no event"),
    "of an unknown event": (b'{"event":"teleported","t":1.0}\n', "nothing that happens"),
    "of another version": (b'{"event":"gap","t":1.0,"v":7}\n', "version 7"),
    "not UTF-8": (b'{"event":"gap","t":1.0,"topic":"\xff"}\n', "no event"),
    "out of time": (b'{"event":"gap","t":1e300}\n', "no time"),
    "zeros": (b"\0" * 100 + b"\n", "no event"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_line_is_set_aside_with_its_reason(trail: Path, tmp_path: Path, kind: str) -> None:
    """The rest is kept; whoever reads the export knows that a line is missing, and between when and when."""
    path = record(trail)
    lines = path.read_bytes().splitlines(keepends=True)
    raw, reason = BAD[kind]
    lines[4] = raw
    path.write_bytes(b"".join(lines))
    summary = export(trail, tmp_path / "out")
    assert (summary.set_aside, summary.lost) == (1, 1)
    (aside,) = (tmp_path / "out" / "_quarantine").iterdir()
    kept = msgspec.json.decode(aside.read_bytes())
    assert kept["line"] == 5
    assert reason in kept["reason"]
    found = rows(tmp_path / "out")
    assert len([row for row in found if row["event"] == "delivered"]) == 9
    (lost,) = [row for row in found if row["event"] == "lost"]
    assert lost["n"] == 1
    assert lost["at"] <= lost["t"]
    assert found[-1]["event"] == "closed"
    assert found[-1]["reason"] is None


def test_lines_that_somebody_took_out_are_missed(trail: Path, tmp_path: Path) -> None:
    """The last line says how many there were."""
    path = record(trail)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[6:]))
    assert export(trail, tmp_path / "out").lost == 3
    assert [row["n"] for row in rows(tmp_path / "out") if row["event"] == "lost"] == [3]


def test_a_file_without_its_first_line_is_attributed_by_its_name(trail: Path, tmp_path: Path) -> None:
    """Its events are too good to be thrown away."""
    path = record(trail)
    path.write_bytes(b"garbage\n" + b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    summary = export(trail, tmp_path / "out")
    assert summary.set_aside == 1
    assert {row["node"] for row in rows(tmp_path / "out")} == {"ann"}
    assert len([row for row in rows(tmp_path / "out") if row["event"] == "delivered"]) == 10


def test_an_empty_file_is_no_reason_to_stop(trail: Path, tmp_path: Path) -> None:
    """It says nothing, and that is said."""
    record(trail)
    (trail / "bob-20260101T000000000000-000001.jsonl").write_bytes(b"")
    summary = export(trail, tmp_path / "out")
    assert (summary.files, summary.set_aside, summary.unclean) == (2, 1, 1)


def test_version_0_is_still_read(trail: Path, tmp_path: Path) -> None:
    """One line a message, its id in one piece, no counts: what it lacks is null."""
    trail.mkdir()
    (trail / "old-20250101T000000000000-000001.jsonl").write_text(
        '{"v":0,"node":"old","pid":7,"time":1735689600.0}\n'
        '{"event":"published","time":1735689601.0,"topic":"users","id":"web:1:5","subs":["a"]}\n'
        '{"event":"delivered","time":1735689601.5,"topic":"users","id":"web:1:5","sub":"a"}\n'
        '{"event":"delivered","time":1735689602.5,"topic":"users","id":"nonsense","sub":"a"}\n'
    )
    summary = export(trail, tmp_path / "out")
    assert summary.set_aside == 1
    found = rows(tmp_path / "out")
    published, delivered = (row for row in found if row["event"] in ("published", "delivered"))
    assert (published["producer"], published["seq"], published["n"], published["t"]) == ("web:1", 5, 1, 1735689601.0)
    assert (delivered["sub"], delivered["node"], delivered["pid"], delivered["m"]) == ("a", "old", 7, None)


def test_a_newer_version_is_left_alone(trail: Path, tmp_path: Path) -> None:
    """Until a zkms that can read it comes along."""
    record(trail)
    newer = trail / "new-20300101T000000000000-000001.jsonl"
    newer.write_text(f'{{"v":{VERSION + 1},"event":"opened","node":"new"}}\n')
    summary = export(trail, tmp_path / "out")
    assert (summary.files, summary.newer) == (1, 1)
    assert "update zkms" in summary.warnings[0]
    assert export(trail, tmp_path / "out").newer == 1, "it is not taken for done"


def test_two_nodes_of_one_name_are_kept_apart_and_named(trail: Path, tmp_path: Path) -> None:
    """The same name at the same time, in directories of two hosts, with the same file name even."""
    other = tmp_path / "other"
    first, second = FileRecorder(Trail(directory=trail), "ann"), FileRecorder(Trail(directory=other), "ann")
    for recorder in (first, second):
        recorder.note("gap", sub="a", topic="users")
    first.close()
    second.close()
    (path,), (twin,) = trail.glob("*.jsonl"), other.glob("*.jsonl")
    twin.rename(other / path.name)
    summary = Exporter(str(tmp_path / "out")).run(find([trail, other]))
    assert summary.files == 2
    assert summary.warnings == summary.namesakes
    (sentence,) = summary.namesakes
    assert "'ann'" in sentence
    assert len({row["run"] for row in rows(tmp_path / "out")}) == 2
    assert len([row for row in rows(tmp_path / "out") if row["event"] == "gap"]) == 2


def test_a_node_that_was_restarted_is_no_namesake(trail: Path, tmp_path: Path) -> None:
    """One after the other is how names are used: in one export, and in another."""
    record(trail)
    record(trail)
    assert export(trail, tmp_path / "out").namesakes == []
    record(trail)
    assert export(trail, tmp_path / "out").namesakes == []


def test_a_namesake_of_an_earlier_export_is_named_too(trail: Path, tmp_path: Path, eventually: Eventually) -> None:
    """Its trail comes an export later, as that of a host that was cut off: what was exported before is remembered."""
    other = tmp_path / "other"
    first = FileRecorder(Trail(directory=trail, file_bytes=1), "ann")
    for count in (1, 2, 3):
        first.note("gap", sub="a", topic="users")
        eventually(lambda: len(list(trail.glob("*.jsonl"))) == count)  # noqa: B023
        if count == 1:
            record(other)  # while the first one's second file is open
    first.close()
    record(trail, node="bob")
    assert export(trail, tmp_path / "out").warnings == []
    summary = export(other, tmp_path / "out")
    assert (summary.files, len(summary.namesakes)) == (1, 1)
    assert export(other, tmp_path / "out").warnings == []


@pytest.mark.parametrize("moment", ["before the parts appear", "between two parts", "before the mark"])
def test_a_kill_at_any_moment_neither_loses_nor_doubles(trail: Path, tmp_path: Path, moment: str) -> None:
    """The next run makes good what was left half done."""
    for node in ("ann", "bob", "cyd"):
        path = record(trail, node=node, count=100)
        lines = path.read_bytes().splitlines(keepends=True)
        event = msgspec.json.decode(lines[50])
        lines[50] = msgspec.json.encode(event | {"t": event["t"] + 7200}) + b"\n"  # so that there are two parts
        path.write_bytes(b"".join(lines))
    program = """
        import os, signal, sys
        from zkms.trail.export.export import Exporter, find
        from zkms.trail.export.target import PartFiles, ExportTarget

        moment, count = sys.argv[3], 0

        def kill(*_args):
            os.kill(os.getpid(), signal.SIGKILL)

        exporter = Exporter(sys.argv[2])
        fs = exporter._target._fs
        move, mark = fs.mv, exporter._target.mark

        def moved(*args, **kwargs):
            global count
            count += 1
            if moment == "before the parts appear" and count == 4 or moment == "between two parts" and count == 5:
                kill()
            return move(*args, **kwargs)

        def marked(name, content):
            global count
            if moment == "before the mark" and "bob" in name:
                kill()
            return mark(name, content)

        fs.mv, exporter._target.mark = moved, marked
        exporter.run(find([sys.argv[1]]))
    """
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(trail), str(tmp_path / "out"), moment],
        capture_output=True,
        timeout=90,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len([*(tmp_path / "out" / "_exported").glob("*.json")]) == 1
    summary = export(trail, tmp_path / "out")
    assert (summary.files, summary.earlier) == (2, 1)
    found = [(row["node"], row["seq"]) for row in rows(tmp_path / "out") if row["event"] == "delivered"]
    assert sorted(found) == [(node, seq) for node in ("ann", "bob", "cyd") for seq in range(1, 101)]
    assert not [*(tmp_path / "out").rglob(".*.part")], "no half files are left"


def test_two_exports_at_once_are_refused(trail: Path, tmp_path: Path) -> None:
    """They would write the same names."""
    record(trail)
    exporter = Exporter(str(tmp_path / "out"))
    with exporter._target.locked(), pytest.raises(ZkmsError, match="under way"):
        export(trail, tmp_path / "out")


def test_other_file_systems_work_too(trail: Path) -> None:
    """fsspec's memory stands for an object store."""
    import fsspec

    record(trail)
    assert Exporter("memory://bucket/trails").run(find([trail])).files == 1
    assert Exporter("memory://bucket/trails").run(find([trail])).earlier == 1
    assert len(fsspec.filesystem("memory").glob("/bucket/trails/date=*/hour=*/*.parquet")) == 1


def test_a_large_file_is_exported_in_batches(trail: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with the file: it becomes several row groups."""
    monkeypatch.setattr("zkms.trail.export.export.BATCH", 100)
    record(trail, count=1000)
    export(trail, tmp_path / "out")
    (part,) = (tmp_path / "out").glob("date=*/hour=*/*.parquet")
    assert pq.ParquetFile(part).num_row_groups >= 10
    assert len([row for row in rows(tmp_path / "out") if row["event"] == "delivered"]) == 1000


def test_nothing_to_export_is_said(tmp_path: Path) -> None:
    """A missing directory, and an empty one."""
    with pytest.raises(NothingRecorded, match="no directory"):
        find([tmp_path / "missing"])
    with pytest.raises(NothingRecorded, match="nothing was recorded"):
        find([tmp_path])


def test_the_command_says_what_it_did(trail: Path, tmp_path: Path) -> None:
    """In a sentence, or as JSON, and with a code that a script can act on."""
    out = str(tmp_path / "out")
    missing = command("--trail", str(trail), "--to", out)
    assert missing.returncode == Exit.NO_TRAIL
    assert "there is no directory" in missing.stderr
    trail.mkdir()
    empty = command("--trail", str(trail), "--to", out)
    assert empty.returncode == Exit.NO_TRAIL
    assert "nothing was recorded" in empty.stderr
    path = record(trail)
    good = command("--trail", str(trail), "--to", out)
    assert good.returncode == Exit.OK, good.stderr
    assert good.stdout == f"Exported 1 file with 12 events to {out}.\n"
    assert good.stderr == "", "no progress bar where nobody watches"
    half = trail / f"bob-{path.name.partition('-')[2]}"
    half.write_bytes(path.read_bytes().replace(b'"node":"ann"', b'"node":"bob"')[:-20])
    amiss = command("--trail", str(trail), "--to", out, "--json")
    assert amiss.returncode == Exit.AMISS
    assert "set aside in" in amiss.stderr
    assert msgspec.json.decode(amiss.stdout)["set_aside"] == 1
    refused = command("--trail", str(trail), "--to", "gopher://x")
    assert refused.returncode == Exit.USAGE
    assert "gopher" in refused.stderr


@pytest.mark.parametrize("args", [["export", "--trail", ".", "--to", "x"], ["generate", "--events", "9", "--out", "x"]])
def test_a_missing_package_is_named(args: list[str]) -> None:
    """zkms alone is small: what it takes to export comes with an extra."""
    program = "import sys; sys.modules['pyarrow'] = None; from zkms.cli import main; main(['trail', *sys.argv[1:]])"
    done = subprocess.run([sys.executable, "-c", program, *args], capture_output=True, text=True, timeout=90)
    assert done.returncode == Exit.ERROR
    assert "needs pyarrow: pip install 'zkms[trail]'" in done.stderr


def test_rows_of_one_event_lie_together_in_the_order_of_their_lines(trail: Path, tmp_path: Path) -> None:
    """So that a reader who asks for some events can leave out the rest."""
    recorder = FileRecorder(Trail(directory=trail), "ann")
    for number in range(1, 31):
        event = ("acked", "delivered", "gap")[number % 3]
        recorder.note(event, sub="a", topic="users", producer="p", seq=number, n=1)
    recorder.close()
    export(trail, tmp_path / "out")
    rows = [
        row for path in (tmp_path / "out").glob("date=*/*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()
    ]
    events = [row["event"] for row in rows]
    kinds = list(dict.fromkeys(events))
    assert events == sorted(events, key=kinds.index)
    assert kinds.index("gap") < kinds.index("delivered") < kinds.index("acked")
    for event, first in (("gap", 2), ("acked", 3), ("delivered", 1)):
        assert [row["seq"] for row in rows if row["event"] == event] == list(range(first, 31, 3))
