"""The generator: realistic, repeatable, and with exactly the violations that it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.support.oracle import Found, audit
from zkms.cli.exit_codes import Exit
from zkms.errors import InvalidArgument
from zkms.trail.event import EVENTS, VIOLATIONS
from zkms.trail.export.export import Exporter, find
from zkms.trail.generate import generate
from zkms.trail.generate.generate import Generated, Generator
from zkms.trail.generate.planting import parse_faults


def rows(place: Path) -> list[dict[str, Any]]:
    """All rows of an export."""
    parts = sorted(place.glob("date=*/hour=*/*.parquet"))
    return [row for part in parts for row in pq.ParquetFile(part).read().to_pylist()]


def planted(done: Generated) -> Found:
    """As the oracle says it: message by message."""
    return {(p.violation, p.sub, p.producer, p.seq + place) for p in done.violations for place in range(p.n)}


@pytest.fixture(autouse=True)
def short_shifts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small trails have several."""
    monkeypatch.setattr(generate, "PER_SHIFT", 5_000)


def test_without_faults_there_is_nothing_to_find(tmp_path: Path) -> None:
    """Kills, purges, gaps, retries, expiry and missing lines are all in order, and all there."""
    done = Generator(20_000, tmp_path / "out", seed=1, parquet=True).run()
    assert done.violations == []
    found = rows(tmp_path / "out")
    assert len(found) == done.events
    assert abs(done.events - 20_000) < 2_000
    assert set(EVENTS) - {row["event"] for row in found} == {"requeued"}  # an operator does that: here is none
    assert audit(found) == set()


@pytest.mark.parametrize("features", [False, True], ids=["plain", "features"])
@pytest.mark.parametrize("seed", range(3))
def test_every_planted_violation_is_there_and_no_other(tmp_path: Path, seed: int, features: bool) -> None:
    """An independent and simple audit finds what planted.json names."""
    faults = dict.fromkeys(VIOLATIONS, 5)
    done = Generator(20_000, tmp_path / "out", faults=faults, seed=seed, features=features, parquet=True).run()
    assert Counter(p.violation for p in done.violations) == faults
    assert audit(rows(tmp_path / "out")) == planted(done)
    assert msgspec.json.decode((tmp_path / "out" / "planted.json").read_bytes(), type=Generated) == done


def test_features_leave_messages_out_and_let_them_overtake(tmp_path: Path) -> None:
    """Parts of frames, urgent messages first, a pattern's gap and purge: all in order, and the rest is as ever."""
    plain = Generator(20_000, tmp_path / "plain", seed=1, parquet=True).run()
    Generator(20_000, tmp_path / "out", seed=1, features=True, parquet=True).run()
    found = rows(tmp_path / "out")
    assert 1.05 * plain.events < len(found) < 1.15 * plain.events
    assert audit(found) == set()
    halves = [row for row in found if row["places"]]
    assert {row["event"] for row in halves} == {"published", "delivered", "acked"}
    assert all(row["places"] == [*range(0, 2 * row["n"], 2)] for row in halves)
    assert audit([{**row, "priority": None} for row in found]), "without their priorities messages are out of order"
    blurred = [{**row, "places": None} if row["event"] == "delivered" else row for row in found]
    assert audit(blurred), "without their places others would be taken for them"
    for event in ("gap", "purged"):
        assert "metrics.*" in {row["topic"] for row in found if row["event"] == event}
        assert audit([row for row in found if (row["event"], row["topic"]) != (event, "metrics.*")])
    theirs = ("topic", "event", "producer", "seq", "n", "t", "sub", "subs", "partition", "epoch")
    before, after = (
        {tuple(str(row[name]) for name in theirs) for row in each} for each in (rows(tmp_path / "plain"), found)
    )
    assert {line[:2] for line in before - after} <= {("None", "closed"), ("None", "lost")}, "which count lines"


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_each_kind_can_be_planted_alone(tmp_path: Path, violation: str) -> None:
    """And is taken for nothing else."""
    done = Generator(5_000, tmp_path / "out", faults={violation: 2}, seed=7, parquet=True).run()
    found = audit(rows(tmp_path / "out"))
    assert found == planted(done)
    assert {kind for kind, *_ in found} == {violation}


def test_lines_exported_are_what_parquet_has(tmp_path: Path) -> None:
    """Both ways to write say the same: files as processes leave them, a killed one among them."""
    faults = dict.fromkeys(VIOLATIONS, 1)
    Generator(5_000, tmp_path / "tables", faults=faults, seed=3, parquet=True).run()
    Generator(5_000, tmp_path / "lines", faults=faults, seed=3).run()
    summary = Exporter(str(tmp_path / "out")).run(find([tmp_path / "lines"]))
    assert (summary.warnings, summary.unclean, summary.open) == ([], 1, 0)

    def key(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["source"], row["event"] == "closed", row["i"]

    exported, tables = sorted(rows(tmp_path / "out"), key=key), sorted(rows(tmp_path / "tables"), key=key)
    for row in [*exported, *tables]:
        if row["reason"] == "unclean":
            row["at"] = row["m"] = None  # the export knows these by the last line alone
    assert exported == tables


def test_the_same_seed_gives_the_same_trail(tmp_path: Path) -> None:
    """And another seed another one."""
    made = [Generator(5_000, tmp_path / str(k), seed=s, parquet=True).run() for k, s in enumerate((1, 1, 2))]
    first, second, other = (rows(tmp_path / str(k)) for k in range(3))
    assert first == second
    assert first != other
    assert made[0] == made[1]


def test_clocks_are_off_as_far_as_asked(tmp_path: Path) -> None:
    """Of nodes, while zxids know the order."""
    Generator(5_000, tmp_path / "out", seed=1, skew=3600.0, parquet=True).run()
    stored = [row for row in rows(tmp_path / "out") if row["event"] == "published"]
    ordered = sorted(stored, key=lambda row: row["zxid"])
    assert ordered != sorted(stored, key=lambda row: row["t"])
    for name in {row["producer"] for row in stored}:
        numbers = [row["seq"] for row in ordered if row["producer"] == name]
        assert numbers == sorted(numbers)


def test_what_cannot_be_made_is_said(tmp_path: Path) -> None:
    """Too few events, too many faults, unknown ones, a directory with something in it."""
    with pytest.raises(InvalidArgument, match="at least"):
        Generator(10, tmp_path / "out")
    with pytest.raises(InvalidArgument, match="too many"):
        Generator(1_000, tmp_path / "many", faults={"lost": 10_000}, parquet=True).run()
    for text in ("eaten=1", "lost", "lost=x", "lost=-1"):
        with pytest.raises(InvalidArgument, match="--faults"):
            parse_faults(text)
    assert parse_faults("lost=3, early=1") == {"lost": 3, "early": 1}
    assert parse_faults("all=2,lost=0") == {**dict.fromkeys(VIOLATIONS, 2), "lost": 0}
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(InvalidArgument, match="not empty"):
        Generator(1_000, tmp_path / "full").run()
    with pytest.raises(InvalidArgument, match="cannot write"):
        Generator(1_000, tmp_path / "full" / "file" / "below").run()


def test_the_command_generates(tmp_path: Path) -> None:
    """`zkms trail generate`, with a sentence and an exit code."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ZKMS_")}

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "zkms", "trail", "generate", *args]
        return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=90)

    done = run("--events", "2000", "--out", str(tmp_path / "out"), "--faults", "lost=1,early=1", "--json")
    assert done.returncode == Exit.OK, done.stderr
    assert [each["violation"] for each in msgspec.json.decode(done.stdout)["violations"]] == ["lost", "early"]
    assert [*(tmp_path / "out").glob("*.jsonl")]
    wrong = run("--events", "2000", "--out", str(tmp_path / "out"))
    assert wrong.returncode == Exit.USAGE
    assert "not empty" in wrong.stderr


def test_events_that_there_are_many_of_have_row_groups_of_their_own(tmp_path: Path) -> None:
    """A question about deliveries reads nothing else, and one about purges reads none of the many."""
    Generator(20_000, tmp_path / "out", seed=1, parquet=True).run()
    most = {"published", "delivered", "acked"}
    groups = [
        set(file.read_row_group(number, columns=["event"])["event"].to_pylist())
        for file in map(pq.ParquetFile, (tmp_path / "out").glob("date=*/*/*.parquet"))
        for number in range(file.num_row_groups)
    ]
    assert all(len(events) == 1 for events in groups if events & most)
    assert set().union(*groups) > most
