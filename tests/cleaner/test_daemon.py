"""zkms-cleaner as a process: purges, reports, gives way, and ends as it should."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from zkms_cleaner import Election, Sweeper

from tests.cleaner.orphanage import entries, make_orphan
from zkms.bus import Bus
from zkms.server.server import Server
from zkms.testing import EmbeddedZooKeeper
from zkms.testing.roots import delete_root, new_root
from zkms.tree.records import Layout, encode
from zkms.zookeeper.operations import Create, SetData


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Server]:
    """Embedded, whatever the run has chosen: what is tested here is the process, and once is enough."""
    with EmbeddedZooKeeper() as server:
        yield server


@pytest.fixture
def zookeeper_root(zookeeper: Server) -> Iterator[str]:
    """A root of the test's own on that server."""
    root = new_root()
    yield root
    delete_root(zookeeper.hosts, root)


class Process:
    """A running zkms-cleaner, its log, and its HTTP port."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        """Read the log as it is written."""
        self.popen = process
        self._log = log

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        """Ask its HTTP server; status 0 if it does not answer."""
        match = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", self.log)
        if match is None:
            return 0, ""
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """A figure from /metrics; -1 if it is not there."""
        match = re.search(rf"^zkms_cleaner_{name} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(match[1]) if match else -1.0


Start = Callable[..., Process]


@pytest.fixture
def start(spawn: Callable[..., subprocess.Popen[str]], zookeeper: Server, zookeeper_root: str, tmp_path: Path) -> Start:
    """Run zkms-cleaner against the test's root."""

    def run(*options: str, hosts: str = zookeeper.hosts, **more: Any) -> Process:
        log = tmp_path / f"cleaner-{time.monotonic_ns()}.log"
        arguments = ["-m", "zkms_cleaner.daemon", "--hosts", hosts, "--root", zookeeper_root, *options]
        with log.open("w") as file:
            return Process(spawn(*arguments, stderr=file, **more), log)

    return run


@pytest.fixture
def run(zookeeper: Server, zookeeper_root: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run zkms-cleaner to its end."""

    def call(
        *options: str, hosts: str = zookeeper.hosts, root: str = zookeeper_root, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "zkms_cleaner.daemon", "--hosts", hosts, "--root", root, *options],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **env},
        )

    return call


def candidates(bus: Bus) -> int:
    """How many stand for election."""
    return len(bus.parts.session.children(bus.parts.tree.cleaner)[0])


# -- the daemon --------------------------------------------------------------------------------------------------------


def test_it_purges_an_orphan_and_says_so_in_log_and_metrics(
    observer: Bus, start: Start, eventually: Callable[..., None]
) -> None:
    """What, how much and why; and Prometheus gets every figure that is promised."""
    queue = make_orphan(observer, entries=7)
    daemon = start("--interval", "0.2", "--grace", "0.5", "--metrics-port", "0")
    eventually(lambda: daemon.metric("purged_queues_total") == 1, what="the purge")
    assert observer.parts.session.exists(queue) is None
    assert f"purged queue {queue} (7 entries): its subscriber, client ghost, is gone" in daemon.log
    assert daemon.metric("leading") == 1
    assert daemon.metric("purged_entries_total") == 7
    assert daemon.metric("purged_producers_total") == 0
    assert daemon.metric("failures_total") == 0
    assert daemon.metric("sweeps_total") >= 2
    assert daemon.metric("sweep_seconds_count") >= 2
    assert abs(daemon.metric("last_sweep_timestamp_seconds") - time.time()) < 30
    eventually(lambda: daemon.metric("orphans") == 0)


def test_health_and_readiness_follow_zookeeper(start: Start, eventually: Callable[..., None], tmp_path: Path) -> None:
    """Ready while it is a candidate; healthy also while ZooKeeper is away, since a restart would help nobody."""
    with EmbeddedZooKeeper() as server:
        daemon = start("--metrics-port", "0", "--session-timeout", "4", hosts=server.hosts)
        eventually(lambda: daemon.get("/readyz")[0] == 200)
        assert daemon.get("/healthz") == (200, "yes\n")
        assert daemon.get("/nothing")[0] == 404
        server.kill(0)
        eventually(lambda: daemon.get("/readyz") == (503, "no\n"))
        assert daemon.get("/healthz")[0] == 200
        server.restart(0)
        eventually(lambda: daemon.get("/readyz")[0] == 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_told_to_stop_it_gives_up_the_lead_and_exits_with_0(
    observer: Bus, start: Start, eventually: Callable[..., None], number: signal.Signals
) -> None:
    """At once: nobody has to wait for its session to expire."""
    daemon = start("--session-timeout", "30")
    eventually(lambda: "leads the cleaners from now on" in daemon.log)
    assert candidates(observer) == 1
    began = time.monotonic()
    daemon.popen.send_signal(number)
    assert daemon.popen.wait(10) == 0
    assert time.monotonic() - began < 5
    assert candidates(observer) == 0
    assert "stopped" in daemon.log


def test_told_to_stop_in_the_middle_of_a_sweep_it_cuts_that_short(
    observer: Bus, start: Start, eventually: Callable[..., None]
) -> None:
    """It ends within seconds, and the next leader finds the rest."""
    queues = [make_orphan(observer, f"ghost-{number}", entries=4000) for number in range(8)]
    daemon = start("--grace", "0")
    eventually(lambda: sum(entries(observer, queue) for queue in queues) < 32_000)
    daemon.popen.terminate()
    assert daemon.popen.wait(10) == 0
    lead = Election(observer.parts.session, observer.parts.tree, observer.client_id).lead()
    assert lead is not None
    Sweeper(observer.parts.session, observer.parts.tree, grace=30.0).sweep(lead)
    Sweeper(observer.parts.session, observer.parts.tree, grace=0.0).sweep(lead)
    assert observer.parts.session.children(observer.parts.tree.messages)[0] == []


def test_of_two_one_leads_and_the_other_takes_over(start: Start, eventually: Callable[..., None]) -> None:
    """The sum of `leading` is one, before and after."""
    first = start("--metrics-port", "0")
    eventually(lambda: first.metric("leading") == 1)
    second = start("--metrics-port", "0")
    eventually(lambda: second.get("/readyz")[0] == 200)
    assert second.metric("leading") == 0
    first.popen.terminate()
    assert first.popen.wait(10) == 0
    eventually(lambda: second.metric("leading") == 1, timeout=5)


def test_stopped_past_its_session_it_follows_when_it_goes_on(
    start: Start, eventually: Callable[..., None], observer: Bus
) -> None:
    """The other leads; the one that slept stands again behind it."""
    first = start("--metrics-port", "0", "--session-timeout", "2")
    eventually(lambda: first.metric("leading") == 1)
    second = start("--metrics-port", "0", "--session-timeout", "2")
    eventually(lambda: second.get("/readyz")[0] == 200)
    first.popen.send_signal(signal.SIGSTOP)
    eventually(lambda: second.metric("leading") == 1)
    first.popen.send_signal(signal.SIGCONT)
    eventually(lambda: first.get("/readyz")[0] == 200 and candidates(observer) == 2)
    assert (first.metric("leading"), second.metric("leading")) == (0, 1)


def test_without_zookeeper_it_says_so_and_keeps_trying(
    start: Start, eventually: Callable[..., None], zookeeper: Server
) -> None:
    """Started first, it finds ZooKeeper when that comes."""
    with EmbeddedZooKeeper() as server:
        server.kill(0)
        daemon = start("--metrics-port", "0", hosts=server.hosts)
        eventually(lambda: "trying on" in daemon.log)
        assert "no ZooKeeper answered" in daemon.log
        assert daemon.get("/healthz")[0] == 200
        assert daemon.get("/readyz")[0] == 503
        server.restart(0)
        eventually(lambda: daemon.get("/readyz")[0] == 200)


# -- systemd -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """The socket that systemd would listen on, and what was said there since it was last asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        path = str(tmp_path / "notify")
        listener.bind(path)
        listener.setblocking(False)

        def heard() -> list[str]:
            lines = []
            while True:
                try:
                    lines += listener.recv(4096).decode().splitlines()
                except BlockingIOError:
                    return lines

        yield path, heard


def test_systemd_hears_ready_watchdog_status_and_stopping(
    start: Start, eventually: Callable[..., None], systemd: tuple[str, Callable[[], list[str]]]
) -> None:
    """Over the socket in NOTIFY_SOCKET, the watchdog often enough for the time it was given."""
    path, hear = systemd
    heard: list[str] = []
    daemon = start(env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "300000"})
    eventually(lambda: heard.extend(hear()) or (heard.count("WATCHDOG=1") >= 5 and "STATUS=leads" in heard))
    assert heard[0] == "READY=1"
    began = time.monotonic()
    more: list[str] = []
    eventually(lambda: more.extend(hear()) or len(more) >= 3)
    assert time.monotonic() - began < 3 * 0.3
    daemon.popen.terminate()
    assert daemon.popen.wait(10) == 0
    assert "STOPPING=1" in hear()


def test_systemd_is_not_told_ready_where_the_tree_is_not_for_us(
    start: Start, systemd: tuple[str, Callable[[], list[str]]], observer: Bus
) -> None:
    """One that a newer zkms has written ends the daemon with exit code 1 before it is ready."""
    path, hear = systemd
    observer.parts.session.multi([SetData(observer.parts.tree.root, encode(Layout(999)))])
    daemon = start(env={"NOTIFY_SOCKET": path})
    assert daemon.popen.wait(20) == 1
    assert "upgrade zkms" in daemon.log
    assert "READY=1" not in hear()


# -- once and dry run --------------------------------------------------------------------------------------------------


def test_once_waits_the_grace_out_and_purges(observer: Bus, run: Callable[..., Any]) -> None:
    """What was purged is a table on stdout, that it waits is said on stderr."""
    queue = make_orphan(observer)
    began = time.monotonic()
    done = run("--once", "--grace", "1.5")
    assert done.returncode == 0
    assert time.monotonic() - began >= 1.5
    assert observer.parts.session.exists(queue) is None
    assert queue in done.stdout
    assert "its subscriber, client ghost, is gone" in done.stdout
    assert "waiting 1.5 s of grace" in done.stderr
    assert candidates(observer) == 0


def test_once_with_no_grace_purges_at_once_and_prints_json(observer: Bus, run: Callable[..., Any]) -> None:
    """One list, one object for each thing purged."""
    queue = make_orphan(observer)
    done = run("--once", "--grace", "0", "--json")
    reason = "its subscriber, client ghost, is gone"
    assert json.loads(done.stdout) == [{"kind": "queue", "path": queue, "reason": reason, "entries": 3, "due_in": 0.0}]
    assert json.loads(run("--once", "--grace", "0", "--json").stdout) == []


def test_once_gives_up_where_another_leads(observer: Bus, run: Callable[..., Any]) -> None:
    """It says who, and that nothing was changed."""
    assert Election(observer.parts.session, observer.parts.tree, observer.client_id).lead() is not None
    queue = make_orphan(observer)
    done = run("--once", "--grace", "0", "--timeout", "0.5")
    assert done.returncode == 4
    assert observer.client_id in done.stderr
    assert "nothing was changed" in done.stderr
    assert entries(observer, queue) == 3


def test_a_dry_run_tells_and_changes_nothing(observer: Bus, run: Callable[..., Any]) -> None:
    """No znode below the root is written, made or removed; the lead is not needed."""
    assert Election(observer.parts.session, observer.parts.tree, observer.client_id).lead() is not None
    queue = make_orphan(observer)
    before = _everything(observer)
    done = run("--dry-run", "--grace", "45")
    assert done.returncode == 0
    assert queue in done.stdout
    assert "after 45 s" in done.stdout
    assert "client ghost, is gone" in done.stdout
    assert [finding["due_in"] for finding in json.loads(run("--dry-run", "--json").stdout)] == [30.0]
    assert _everything(observer) == before


def _everything(bus: Bus) -> dict[str, tuple[int, int, int]]:
    found, paths = {}, [bus.parts.tree.root]
    while paths:
        path = paths.pop()
        names, stat = bus.parts.session.children(path)
        found[path] = stat.mzxid, stat.cversion, stat.version
        paths += [f"{path}/{name}" for name in names]
    return found


@pytest.mark.parametrize("option", ["--once", "--dry-run"])
def test_where_there_is_no_tree_none_is_made(
    observer: Bus, run: Callable[..., Any], zookeeper_root: str, option: str
) -> None:
    """A mistyped root is said, and not created."""
    done = run(option, "--json", root=f"{zookeeper_root}/elsewhere")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    assert "no zkms tree" in done.stderr
    assert observer.parts.session.exists(f"{zookeeper_root}/elsewhere") is None


@pytest.mark.parametrize("option", ["--once", "--dry-run"])
def test_without_zookeeper_a_single_run_ends_with_one_sentence(run: Callable[..., Any], option: str) -> None:
    """Exit code 3, and no traceback."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        done = run(option, hosts=f"127.0.0.1:{unused.getsockname()[1]}")
    assert done.returncode == 3
    assert done.stderr.startswith("Error: no ZooKeeper answered")
    assert len(done.stderr.splitlines()) == 1


# -- usage -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--interval", "0"], "--interval"),
        (["--grace", "-1"], "--grace"),
        (["--json"], "--json goes with --once or --dry-run"),
        (["--metrics-port", "70000"], "--metrics-port"),
        (["--root", "no-slash", "--once"], "absolute znode path"),
        (["--auth", "digest:a:b"], "No such option"),
    ],
)
def test_wrong_usage_exits_with_2(run: Callable[..., Any], options: list[str], sentence: str) -> None:
    """And says which option it was."""
    done = run(*options)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_help_documents_exit_codes_credentials_and_examples(run: Callable[..., Any]) -> None:
    """It teaches: what a stranger needs is in there."""
    text = run("--help").stdout
    for word in ("Exit codes", "ZKMS_AUTH", "--dry-run", "Examples", "ZKMS_HOSTS", "cleaner=False"):
        assert word in text


def test_credentials_come_from_environment_or_file_and_malformed_ones_are_refused(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    """A password is never shown."""
    secret = tmp_path / "auth"
    secret.write_text("digest:ann:pass-word\n")
    secret.chmod(0o600)
    assert run("--dry-run", ZKMS_AUTH_FILE=str(secret)).returncode == 0
    assert run("--dry-run", ZKMS_AUTH="digest:ann:pass-word").returncode == 0
    done = run("--dry-run", ZKMS_AUTH="pass-word")
    assert done.returncode == 2
    assert "pass-word" not in done.stderr + done.stdout


def test_a_taken_port_is_one_sentence(run: Callable[..., Any]) -> None:
    """Exit code 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = run("--metrics-port", port)
    assert done.returncode == 1
    assert done.stderr.strip() == f"Error: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_without_prometheus_client_the_extra_is_named(run: Callable[..., Any], tmp_path: Path) -> None:
    """An installed zkms without extras is told what is missing."""
    hidden = tmp_path / "prometheus_client.py"
    hidden.write_text("raise ModuleNotFoundError(name='prometheus_client')")
    done = run("--metrics-port", "0", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "--metrics-port needs prometheus_client: pip install 'zkms[cleaner]'" in done.stderr


def test_it_is_also_a_command_of_zkms(observer: Bus, zookeeper: Server, zookeeper_root: str) -> None:
    """The same command, with the options before or after its name."""
    observer.parts.session.multi([Create(observer.parts.tree.subscription("ghost"))])
    done = subprocess.run(
        [sys.executable, "-m", "zkms", "--hosts", zookeeper.hosts, "--json", "cleaner", "--dry-run"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "ZKMS_ROOT": zookeeper_root},
    )
    assert [finding["kind"] for finding in json.loads(done.stdout)] == ["empty"]
