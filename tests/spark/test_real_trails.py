"""Trails of real processes, to which something was done: Spark's audit says what happened, and invents nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from zkms_cleaner import Cleaner
from zkms_spark.analysis import Analysis, analyse

import zkms
from zkms.testing import EmbeddedZooKeeper, Proxy, expire
from zkms.trail.export.export import Exporter, find

PROGRAMS = Path(__file__).parent / "programs"
NODE = Path(__file__).parents[1] / "trail" / "programs" / "node.py"
HOUR = 3600.0
pytestmark = pytest.mark.timeout(1200)  # an analysis is minutes of work for a machine that is busy with other tests


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedZooKeeper]:
    """What the trails tell has nothing to do with where the server runs: one kind is enough."""
    with EmbeddedZooKeeper() as running:
        yield running


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a program and wait until it is ready; killed after the test."""
    with ExitStack() as stack:

        def run(program: Path, *arguments: object) -> subprocess.Popen[str]:
            command = [sys.executable, str(program), *map(str, arguments)]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.kill)
            expect(process, "ready")
            return process

        yield run


def expect(process: subprocess.Popen[str], word: str) -> None:
    """Wait until it says so."""
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def tell(process: subprocess.Popen[str]) -> None:
    """Let it go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def analysis_of(spark: Any, trail: Path, to: Path) -> Analysis:
    """By way of an export."""
    Exporter(str(to)).run(find([trail]))
    return analyse(spark, str(to))


def violations(analysis: Analysis) -> list[dict[str, Any]]:
    """What the audit calls broken."""
    return [row for row in analysis.findings if row["verdict"] == "violation"]


def test_a_clock_an_hour_off_is_estimated_and_breaks_nothing(
    spark: Any, server: EmbeddedZooKeeper, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Two machines that talk to each other, one an hour ahead: latencies are theirs, and no guarantee is broken."""
    trail = tmp_path / "trail"
    members = [
        start(PROGRAMS / "member.py", server.hosts, "/clocks", trail, name, ahead)
        for name, ahead in (("right", 0.0), ("ahead", HOUR))
    ]
    for member in members:
        tell(member)
    for member in members:
        expect(member, "done")
    for member in members:
        tell(member)
        assert member.wait(120) == 0
    analysis = analysis_of(spark, trail, tmp_path / "exported")
    offsets = {row["host"]: row["offset"] for row in analysis.clocks}
    assert offsets["ahead"] - offsets["right"] == pytest.approx(HOUR, abs=60)
    assert violations(analysis) == []
    assert {verdict.violation: verdict.status for verdict in analysis.verdicts}["missed"] == "kept"
    assert analysis.totals["delivered"] == analysis.totals["stored"] == 2 * 2 * 40
    assert analysis.ended - analysis.began < HOUR / 2
    assert all(0 < row["p50"] < 300 for row in analysis.subscriptions)


def test_the_trail_of_cut_connections_a_lost_session_and_a_killed_node_is_clean(
    spark: Any,
    server: EmbeddedZooKeeper,
    start: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """Nothing lost, nothing twice, all in order, in the words of Spark's audit."""
    trail = tmp_path / "trail"
    got: list[object] = []
    with Proxy(server.hosts) as proxy, ExitStack() as stack:

        def connect(hosts: str, name: str) -> zkms.Bus:
            options: dict[str, Any] = {"trail": trail, "client_id": name, "cleaner": False, "request_timeout": 60.0}
            return stack.enter_context(zkms.connect(hosts, "/faults", **options))

        writer, reader, other = (
            connect(proxy.hosts, "writer"),
            connect(server.hosts, "reader"),
            connect(server.hosts, "other"),
        )
        reader.subscribe("users", lambda _message: None)
        other.subscribe("users", lambda message: got.append(message.data))
        nodes = [start(NODE, server.hosts, "/faults", trail) for _ in range(2)]
        cleaner = Cleaner(
            other.parts.session, other.parts.tree, "cleaner", interval=0.2, grace=1.0, trail=other.parts.context.trail
        )
        for number in range(6):
            (proxy.cut_reply if number % 2 else proxy.cut_request)(1, op="multi")
            writer.publish_many("users", range(100 * number, 100 * number + 100), key=str)
        proxy.heal()
        nodes[0].kill()
        nodes[0].wait()
        generation = reader.parts.session.generation
        expire(reader)
        writer.publish_many("users", range(600, 700), key=str)
        eventually(lambda: reader.parts.session.generation > generation, timeout=120, what="the reader's next session")
        writer.publish("users", 700, key="700")
        eventually(lambda: 700 in got, timeout=120, what="the last message")
        cleaner.start()
        eventually(lambda: len(writer.queues()) == 3, timeout=120, what="the purge of the killed node's queue")
        eventually(lambda: not any(queue.entries for queue in writer.queues()), timeout=120)
        assert nodes[1].stdin is not None
        nodes[1].stdin.close()
        assert nodes[1].wait(120) == 0
        cleaner.close()
    assert got == list(range(701))
    analysis = analysis_of(spark, trail, tmp_path / "exported")
    assert violations(analysis) == []
    statuses = {verdict.violation: verdict.status for verdict in analysis.verdicts}
    assert statuses["duplicated"] == statuses["out_of_order"] == "kept"
    assert any(row["event"] == "purged" for row in analysis.incidents)
