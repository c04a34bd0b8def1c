"""A bus does not cross a fork: the child is told, and the parent notices nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from zkms.server.server import Server

PROGRAM = Path(__file__).parent / "programs" / "forking.py"


def test_a_bus_used_in_a_forked_child_says_so_and_the_parents_goes_on(zookeeper: Server, zookeeper_root: str) -> None:
    """UsedAfterFork for every use; close() is harmless; a bus of the child's own works."""
    run = subprocess.run(
        [sys.executable, str(PROGRAM), zookeeper.hosts, zookeeper_root],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    report = result["child"]
    for harmless in ("close", "close_stream", "repr", "own"):
        assert report.pop(harmless) == "ok"
    assert set(report.values()) == {"UsedAfterFork"}, report
    assert result["status"] == 0
    assert result["heard"] == ["before", "from the child", "after"]
    assert result["acked"] == 1
    assert result["generation"] == 1, "the parent lost its session"
    assert result["queues"] == 1
    assert "Traceback" not in run.stderr
