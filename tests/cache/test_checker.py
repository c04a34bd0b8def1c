"""Processes that share a database through caches never read what a finished write has replaced.

The longer runs, by hand: `python -m verification.faults.cache.run --help`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from verification.faults.cache.history import NEVER, History, Write, check
from verification.faults.cache.run import Run
from zkms.server.server import Server
from zkms.testing import EmbeddedZooKeeper


def test_nobody_reads_what_a_finished_write_has_replaced(
    zookeeper: Server, zookeeper_root: str, tmp_path: Path
) -> None:
    """Four processes, each reading and writing, with invalidate(wait=...) after each write."""
    run = Run(seconds=4).on(zookeeper, zookeeper_root, tmp_path)
    print(run)
    assert run.findings.broken == []
    assert run.findings.stale == []
    assert run.findings.finished > 0
    assert run.total("hits") > run.findings.reads / 2, "they were served by their caches"


def test_nobody_does_on_asyncio(server: EmbeddedZooKeeper, tmp_path: Path) -> None:
    """Tasks in place of threads, some of them cancelled; one process is cut off for longer than its session."""
    run = Run(seconds=4, processes=3, session_timeout=2.0, max_staleness=0.8, cut=True, aio=True)
    run.on(server, "/asyncio", tmp_path)
    print(run)
    assert run.findings.broken == []
    assert run.findings.stale == []
    assert run.total("hits") > 0
    assert run.flushes["expired"] >= 1


def test_nor_if_a_node_is_cut_off_and_another_one_stopped(
    zookeeper: Server, zookeeper_root: str, tmp_path: Path
) -> None:
    """Both for longer than their sessions; each flush that this leads to has its reason."""
    run = Run(seconds=4, session_timeout=2.0, max_staleness=0.8, cut=True, stop=True).on(
        zookeeper, zookeeper_root, tmp_path
    )
    print(run)
    assert run.findings.broken == []
    assert run.findings.stale == []
    assert run.total("bypasses") > 0
    assert run.flushes["expired"] >= 1


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedZooKeeper]:
    """For what has to be seen only once: that a broken cache is noticed does not depend on where ZooKeeper runs."""
    with EmbeddedZooKeeper() as running:
        yield running


@pytest.mark.parametrize(
    ("without", "cut", "aio"),
    [
        ("guard", False, False),
        ("wait", False, False),
        ("gap", True, False),
        ("trust", True, False),
        ("guard", False, True),
        ("wait", False, True),
    ],
    ids=lambda value: str(value),
)
def test_a_mechanism_that_is_taken_away_is_missed(
    without: str, cut: bool, aio: bool, server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    """The check against a late load, the flush at a gap, the wait, or the proof: the checker finds that it is gone."""
    for attempt in range(4):  # a busy machine may need more than one
        directory = tmp_path / str(attempt)
        directory.mkdir()
        # Writers that wait long for the one that is cut off would write little for it to miss.
        run = Run(seconds=3, keys=8, processes=3, wait=0.5, session_timeout=2.0, max_staleness=0.8)
        run.without, run.cut, run.aio = without, cut, aio
        run.on(server, f"/{without}-{aio}-{attempt}", directory)
        print(run)
        if run.findings.broken:
            return
    pytest.fail(f"without the {without} nothing wrong was read")


def test_the_history_tells_what_was_allowed(tmp_path: Path) -> None:
    """A read may see the old value until the write is finished, and at most `max_staleness` after it is sent."""
    history = History(tmp_path / "h")
    history.write(1, Write(2, begun=10.0, sent=11.0, done=12.0))
    history.write(1, Write(3, begun=20.0, sent=21.0, done=NEVER))
    history.read(1, 1, 11.9)
    history.read(1, 2, 12.1)
    history.read(1, 2, 25.9)
    history.close()
    found = check([tmp_path / "h"], max_staleness=5.0)
    assert (found.broken, found.stale, found.finished) == ([], [], 1)
    assert found.oldest == pytest.approx(5.9)
    more = History(tmp_path / "more")
    more.read(1, 1, 12.1)
    more.read(1, 2, 26.1)
    more.close()
    found = check([tmp_path / "h", tmp_path / "more"], max_staleness=5.0)
    assert len(found.broken) == 1
    assert len(found.stale) == 1
