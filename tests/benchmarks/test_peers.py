"""The peers: each is used as the comparison uses it, where its server is installed; figures are not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import plot, table
from benchmarks.comparison import PACK, Comparison, Figure, compare, findable
from benchmarks.peers import PEERS, Peer, chosen
from zkms.bench.algorithms.algorithm import BenchPlace
from zkms.bench.processes.crew import Crew
from zkms.bench.processes.orders import Publish
from zkms.testing import ServerError

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("peer", PEERS[1:], ids=lambda peer: peer.name)
def test_every_message_reaches_every_subscriber_of_a_peer(peer: Peer, tmp_path: Path) -> None:
    """Three subscribers in two processes receive and ack a handful, twice; then some packed into one by hand."""
    if peer.lacks:
        pytest.skip(peer.lacks)
    with findable(), peer.start(tmp_path) as address:
        with Crew(peer.module, BenchPlace(address, "/one"), tmp_path, subscribers=3) as crew:
            for messages in (5, 70):
                assert crew.publish(Publish(messages, timeout=120)).seconds > 0
            assert crew.publish(Publish(3, rate=50, timeout=120)).seconds > 0
        if peer.packed:
            with Crew(peer.module, BenchPlace(address, "/packed"), tmp_path, subscribers=2, tally="unpack") as crew:
                assert crew.publish(Publish(600, pack=PACK, timeout=120)).seconds > 0


def test_one_command_runs_all_that_are_there_and_writes_the_results(tmp_path: Path) -> None:
    """Two peers that need nothing but ZooKeeper: a page, the figures as JSON, and a picture."""
    command = [sys.executable, "-m", "benchmarks", "kazoo", "--rounds", "1", "--seconds", "0.01", "--no-install"]
    command += ["--subscribers", "1", "--subscribers", "2", "--out", str(tmp_path / "results")]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "round 1: kazoo LockingQueue" in done.stderr
    page = (tmp_path / "results" / "peers.md").read_text()
    assert page in done.stdout
    assert "| kazoo LockingQueue | " in page
    document = json.loads((tmp_path / "results" / "peers.json").read_text())
    assert {(figure["peer"], figure["subscribers"]) for figure in document["figures"]} == {
        ("zkms", 1), ("zkms", 2), ("kazoo LockingQueue", 1), ("kazoo LockingQueue", 2)
    }  # fmt: skip
    assert document["absent"] == {}
    assert (tmp_path / "results" / "peers.png").read_bytes().startswith(b"\x89PNG\r\n")


def figure(peer: str, rate: float, pack: int = 1) -> Figure:
    return Figure(
        peer=peer, durability="fsync", subscribers=20, pack=pack, messages=1, seconds=1.0, messages_per_s=rate
    )


def test_the_page_says_what_is_required_and_whether_it_is_met(tmp_path: Path) -> None:
    """Twice as fast message by message, half as fast as what is packed by hand."""
    comparison = Comparison(zkms="1", python="3", system="Linux", cores=2, rounds=1, others="others were at work")
    comparison.figures = [figure("zkms", 100), figure("Slow", 50), figure("Fast", 51), figure("Slow", 200, PACK)]
    comparison.figures.append(figure("Fast", 201, PACK))
    comparison.absent = {"Nobody": "not installed"}
    page = table.page(comparison)
    for line in (
        "| Slow, message by message | 2x | 2x | yes |",
        "| Fast, message by message | 2x | 2x | no |",
        "| Slow, 256 packed by hand | 0.5x | 0.5x | yes |",
        "| Fast, 256 packed by hand | 0.5x | 0.5x | no |",
        "Not measured: Nobody: not installed",
        "**others were at work.**",
    ):
        assert line in page
    plot.save(comparison, tmp_path / "peers.png")
    assert (tmp_path / "peers.png").stat().st_size > 0


def test_one_that_is_missing_or_fails_is_named() -> None:
    """A server that is not installed, and one that does not start: each with its reason, and no figures."""

    @contextmanager
    def broken(_folder: Path) -> Iterator[str]:
        raise ServerError("it does not start")
        yield ""

    missing = PEERS[0]._replace(name="Missing", command="no-such-server")
    failing = PEERS[0]._replace(name="Broken", start=broken)
    result = compare([missing, failing], rounds=2, seconds=0.01, subscribers=(1,), say=lambda _line: None)
    assert result.absent == {"Missing": "no-such-server is not installed", "Broken": "it does not start"}
    assert result.figures == []


def test_peers_are_chosen_by_a_part_of_their_name() -> None:
    """zkms always takes part; no name means all."""
    assert [peer.name for peer in chosen(("redis",))] == ["zkms", "Redis Streams"]
    assert chosen(()) == list(PEERS)
