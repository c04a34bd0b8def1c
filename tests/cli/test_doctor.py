"""`zkms doctor`: finds what is wrong, and says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import zkms
from tests.support.cli import Cli
from zkms.cli.exit_codes import Exit
from zkms.cli.operate.checks.server import _session_times, _version
from zkms.server.embedded import EmbeddedZooKeeper
from zkms.server.ports import free_ports
from zkms.server.server import Server
from zkms.zookeeper.operations import Create


def examine(cli: Cli, *args: str) -> dict[str, list[dict[str, str]]]:
    """The findings, by what was checked."""
    found: dict[str, list[dict[str, str]]] = {}
    for finding in json.loads(cli("doctor", "--json", *args).stdout):
        found.setdefault(finding["check"].split()[0], []).append(finding)
    return found


def test_a_healthy_tree_has_no_problems(cli: Cli, bus: zkms.Bus, eventually: Callable[..., None]) -> None:
    """Version, limits, speed and the cleaner; an open tree and a talkative server are warnings, which do not count."""
    bus.subscribe("news")
    eventually(lambda: bus.parts.session.children(bus.parts.tree.cleaner)[0])
    done = cli("doctor")
    assert done.returncode == Exit.OK, done.stdout
    for words in ("ZooKeeper 3.9", "median of 5", "goes through", "leads", "open to everybody", "1 connected"):
        assert words in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 problems, ")
    found = examine(cli)
    warnings = {check for check, findings in found.items() for each in findings if each["level"] == "warning"}
    assert warnings - {"encryption"} == {"access", "words"}


def test_nothing_there_yet_is_fine(cli: Cli) -> None:
    """A server without a tree: said, and no problem."""
    found = examine(cli)
    assert "does not exist yet" in found["tree"][0]["finding"]
    assert cli("doctor").returncode == Exit.OK


def test_what_was_left_behind_is_found(cli: Cli, bus: zkms.Bus, kazoo: Any) -> None:
    """Orphans, full queues, garbage registrations, and dead letters: warnings, each with advice."""
    root = bus.parts.context.config.root
    bus.subscribe("news", ack="manual", limit=3)
    for _ in range(6):
        bus.publish("news", "x")
    kazoo.create(f"{root}/messages/dead-client/news", b'{"zkms":"queue","client":"dead-client"}', makepath=True)
    kazoo.create(f"{root}/messages/dead-client/news/f.1.1.", sequence=True)
    kazoo.create(f"{root}/subscribers/news/intruder", b"\x00")
    kazoo.create(f"{root}/dead/somebody/news/garbage", b"\x00", makepath=True)
    found = examine(cli)
    assert "1 with 1 entry: dead-client for news" in found["orphaned"][0]["finding"]
    assert bus.client_id.split("~")[0] in found["full"][0]["finding"]
    assert "intruder" in found["foreign"][0]["finding"]
    assert "1 message given up, or unreadable, from somebody for news" in found["dead"][0]["finding"]
    for check in ("orphaned", "full", "foreign", "dead"):
        assert found[check][0]["level"] == "warning"
        assert found[check][0]["advice"]


def test_a_backlog_is_told_without_listing_it(cli: Cli, bus: zkms.Bus) -> None:
    """The longest queues by ZooKeeper's own count."""
    subscription = bus.subscribe("news", ack="manual", prefetch=1)
    queue = bus.parts.tree.queue(subscription.id, "news")
    for _ in range(5):
        bus.parts.session.multi([Create(f"{queue}/f.1.1.", b"", sequence=True)] * 2_000)
    [backlog] = examine(cli)["backlog"]
    assert backlog["level"] == "warning"
    assert "10,000 entries" in backlog["finding"]


def test_nobody_who_cleans_is_a_warning(cli: Cli, zookeeper: Server, zookeeper_root: str) -> None:
    """Where clients are connected and none of them stands for election."""
    with zkms.connect(zookeeper.hosts, root=zookeeper_root, cleaner=False) as bus:
        bus.subscribe("news")
        [cleaner] = examine(cli)["cleaner"]
    assert cleaner["level"] == "warning"
    assert "zkms cleaner" in cleaner["advice"]


def test_another_programs_root_is_a_problem(cli: Cli, kazoo: Any, zookeeper_root: str) -> None:
    """Data that are not ours, a newer layout, and a tree with holes: exit code 1."""
    for data, words in (
        (b"something else", "another program's data"),
        (b'{"zkms":"root","layout":99}', "layout 99"),
        (b'{"zkms":"root","layout":1}', "missing"),
    ):
        kazoo.ensure_path(zookeeper_root)
        kazoo.set(zookeeper_root, data)
        done = cli("doctor", "--json")
        assert done.returncode == Exit.ERROR
        [problem] = [f for f in json.loads(done.stdout) if f["level"] == "problem"]
        assert words in problem["finding"]
        assert problem["advice"]


def test_a_server_that_is_down_is_named(zookeeper: Server, lost: Cli) -> None:
    """The only one: a problem. One of several: a warning, and the rest is examined."""
    [port] = free_ports(1)
    done = lost("doctor", "--hosts", f"127.0.0.1:{port}", "--json")
    assert done.returncode == Exit.ERROR
    assert [f["check"] for f in json.loads(done.stdout) if f["level"] != "ok"] == [
        f"server 127.0.0.1:{port}",
        "session",
    ]
    found = examine(lost, "--hosts", f"127.0.0.1:{port},{zookeeper.hosts}")
    levels = {f["check"]: f["level"] for f in found["server"]}
    assert levels[f"server 127.0.0.1:{port}"] == "warning"
    assert "write" in found


def test_limits_that_are_too_small_are_a_problem(lost: Cli) -> None:
    """A server with a small jute.maxbuffer, without four-letter words and with short sessions."""
    settings = {"4lw.commands.whitelist": "srvr,conf", "minSessionTimeout": 1000, "maxSessionTimeout": 4000}
    with EmbeddedZooKeeper(config=settings, jvm_args=["-Djute.maxbuffer=100000"]) as server:
        done = lost("doctor", "--hosts", server.hosts, "--json")
        findings = {f["check"]: f for f in json.loads(done.stdout) if f["level"] != "ok"}
    assert done.returncode == Exit.ERROR
    assert "jute.maxbuffer" in findings["largest request"]["advice"]
    assert "gets 4 s" in findings[f"server {server_name(findings)}"]["finding"]


def server_name(findings: dict[str, Any]) -> str:
    """Host and port of the only server among the findings."""
    [name] = [check.removeprefix("server ") for check in findings if check.startswith("server ")]
    return name


def test_versions_and_session_times_are_judged() -> None:
    """What an old server, a lone member of an ensemble and odd limits are told."""
    answer = "Zookeeper version: 3.4.14\nMode: standalone\n"
    assert _version("s", (3, 4, 14), answer, alone=True).level == "warning"
    assert _version("s", (3, 9, 5), answer, alone=False).level == "problem"
    assert _version("s", (3, 9, 5), answer, alone=True).level == "ok"
    [low] = _session_times("s", "minSessionTimeout=20000\nmaxSessionTimeout=40000\n", 10.0)
    assert (low.level, "gets 20 s" in low.finding) == ("warning", True)
    assert list(_session_times("s", "conf is not executed because it is not in the whitelist.", 10.0)) == []
