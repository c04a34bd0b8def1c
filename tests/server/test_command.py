"""`zkms server` as its user sees it: a process in a terminal."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkms.server.ports import free_ports, is_free

COMMAND = [sys.executable, "-c", "from zkms.cli.operate.server import server; server()"]


@contextmanager
def running(*args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the command until it says how to use it; yields the process and the hosts that it printed."""
    with subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "export ZKMS_HOSTS=" in line:
                    yield process, line.strip().removeprefix("export ZKMS_HOSTS=")
                    break
            else:
                assert process.stderr is not None
                pytest.fail(f"the server said: {process.stderr.read()}")
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_stops_cleanly(number: signal.Signals) -> None:
    """It prints where it listens, serves there, and a signal ends it with code 0 and a free port."""
    [port] = free_ports(1)
    with running("--port", str(port)) as (process, hosts):
        assert hosts == f"127.0.0.1:{port}"
        client = KazooClient(hosts)
        client.start()
        client.create("/served")
        client.stop()
        client.close()
        process.send_signal(number)
        assert process.wait(timeout=20) == 0
        assert is_free(port)


def test_data_are_kept_where_the_user_says(tmp_path: Path) -> None:
    """What one run wrote the next one finds, and the log is where it was asked for."""
    [port] = free_ports(1)
    for run in (1, 2):
        with running("--port", str(port), "--data", str(tmp_path / "data"), "--log", str(tmp_path / "log")) as (
            process,
            hosts,
        ):
            client = KazooClient(hosts)
            client.start()
            client.create(f"/run-{run}")
            assert client.exists("/run-1")
            client.stop()
            client.close()
            process.terminate()
            assert process.wait(timeout=20) == 0
    assert (tmp_path / "log").stat().st_size > 0


def test_several_nodes_listen_on_consecutive_ports() -> None:
    """--nodes 3 starts an ensemble from the given port on."""
    first = next(port for port in range(21_000, 31_000) if all(is_free(port + i) for i in range(3)))
    with running("--nodes", "3", "--port", str(first)) as (process, hosts):
        assert hosts == ",".join(f"127.0.0.1:{first + i}" for i in range(3))
        process.terminate()
        assert process.wait(timeout=20) == 0


def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    """A taken port, an unwritable directory and an even ensemble: exit code 1 and one line, no traceback."""
    (tmp_path / "file").touch()
    [free] = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for args, sentence in (
            (["--port", str(port)], f"port {port} is taken by another process"),
            (["--port", str(free), "--data", str(tmp_path / "file" / "data")], "cannot write to the data directory"),
            (["--port", str(free), "--nodes", "2"], "an odd number of nodes"),
        ):
            done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=60)
            last = done.stderr.strip().splitlines()[-1]
            assert done.returncode == 1
            assert last.startswith("Error: ")
            assert sentence in last
            assert "Traceback" not in done.stderr
