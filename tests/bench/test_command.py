"""`zkms bench` as a user runs it; figures are not looked at, for this machine may be busy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkms.cli.exit_codes import Exit
from zkms.testing import EmbeddedZooKeeper

COMMAND = [sys.executable, "-m", "zkms", "bench"]
ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("ZKMS_")}


def test_a_short_run_measures_everybody_and_leaves_nothing_in_zookeeper(
    server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """On a ZooKeeper of the user's: JSON with every kind of figure, a picture, and the root removed."""
    picture = tmp_path / "bench.png"
    done = subprocess.run(
        [*COMMAND, "--hosts", server.hosts, "--seconds", "0.01", "--json", "--plot", str(picture)],
        env=ENVIRON, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == Exit.OK, done.stderr
    document = json.loads(done.stdout)
    assert document["suite"] == "quick"
    assert document["failures"] == {}
    assert document["machine"]["embedded"] is False
    measured = {(row["algorithm"], row["subscribers"]) for row in document["throughput"]}
    assert measured == {("zkms", 1), ("original", 1), ("zkms", 20), ("original", 20)}
    for row in document["throughput"]:
        assert row["messages_per_s"] > 0
        assert row["deliveries_per_s"] == pytest.approx(row["messages_per_s"] * row["subscribers"])
        assert row["requests_per_delivery"] > 0
        assert row["subscriber_cpu_us"] > 0
        assert row["server_cpu_us"] is None  # not our process
    assert {row["algorithm"] for row in document["latency"]} == {"zkms", "floor"}
    for row in document["latency"]:
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["p999_ms"]
    assert {row["algorithm"] for row in document["purge"]} == {"zkms", "kazoo"}
    assert {"published_per_s", "consumed_per_s", "message_size", "publishers", "consumers", "persistence",
            "acknowledgement"} == set(document["broker"][0])  # fmt: skip
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    assert "zkms: throughput to 20 subscribers" in done.stderr
    assert "\x1b" not in done.stderr  # a bar is for terminals
    client = KazooClient(server.hosts)
    client.start(timeout=20)
    assert [name for name in client.get_children("/") if "bench" in name] == []
    client.stop()
    client.close()


def children(pid: int) -> set[int]:
    """The processes that a process has started; its threads come and go while we look."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


def running(pid: int) -> bool:
    """Whether a process is there, and not only waiting to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_it_leaves_no_process_behind(
    number: signal.Signals, server: EmbeddedZooKeeper, eventually: Callable[..., None], tmp_path: Path
) -> None:
    """By Ctrl-C, with a ZooKeeper that it has started, or killed: publishers, subscribers and that ZooKeeper end."""
    environ = ENVIRON | {"TMPDIR": str(tmp_path)}
    command = COMMAND if number == signal.SIGINT else [*COMMAND, "--hosts", server.hosts]
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as bench:
        assert bench.stderr is not None
        first = bench.stderr.readline()
        assert "throughput" in first
        seen: set[int] = set()

        def a_crew_is_at_work() -> bool:
            seen.update(children(bench.pid))
            return len(seen) >= 3

        eventually(a_crew_is_at_work)
        bench.send_signal(number)
        code = bench.wait(timeout=60)
    assert code == (-number if number == signal.SIGKILL else Exit.INTERRUPTED)
    eventually(lambda: not any(map(running, seen)))
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "code", "sentence"),
    [
        (["--plot", "bench.nonsense"], Exit.USAGE, "give a file with such an ending"),
        (["--plot", "/nonexistent/bench.png"], Exit.USAGE, "there is no directory /nonexistent"),
        (["--hosts", "127.0.0.1:1"], Exit.NO_ZOOKEEPER, "127.0.0.1:1"),
        (["--seconds", "0"], Exit.USAGE, "--seconds"),
        (["--rounds", "0"], Exit.USAGE, "--rounds"),
    ],
)
def test_what_cannot_work_is_said_at_once(args: list[str], code: Exit, sentence: str) -> None:
    """In one sentence, before anything is measured."""
    done = subprocess.run([*COMMAND, *args], env=ENVIRON, capture_output=True, text=True, timeout=90)
    assert done.returncode == code, done.stderr
    assert sentence in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
