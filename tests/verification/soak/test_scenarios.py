"""The long runs, cut short: each scenario once, with a few processes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from kazoo.retry import KazooRetry

from verification.soak import crowd, endurance, overrun, plot, results
from zkms.config import Config
from zkms.zookeeper.connection import Connection
from zkms.zookeeper.kazoo_client import Client


def test_a_soak_finds_a_planted_leak_and_nothing_else_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One subscriber leaks file descriptors; the others' stay as they are, and no promise is broken."""
    monkeypatch.setattr(endurance, "GUESTS", 1)
    monkeypatch.setattr(endurance, "STAY", (1.0, 3.0))
    document = endurance.run(7.0, every=0.35, peak=1.5, leak="files")
    growing = {each.series for each in document.growing if each.series.endswith(": files")}
    assert growing == {"listener-1: files"}
    assert not document.ok
    assert not document.broken
    assert int(document.facts["guests that were killed"]) >= 1
    file = results.save(document, tmp_path)
    plot.save(document, file.with_suffix(".png"))
    assert file.with_suffix(".png").stat().st_size > 10_000


def test_after_a_storm_all_are_back_with_their_sessions_and_get_every_message() -> None:
    """Twelve processes here, two hundred with `make soak`: no session lost, few requests."""
    document = crowd.storm(12, 1.0)
    assert document.ok, document.broken
    assert document.facts["sessions lost"] == 0
    assert document.facts["delivered to each, at least"] == document.facts["messages stored"]


def test_an_overrun_is_bounded(tmp_path: Path) -> None:
    """Readers a hundred times too slow: the durable one pushes back, the live ones are told of gaps."""
    document = overrun.run(6.0, every=0.5)
    assert not document.broken
    assert int(document.facts["refused, QueueFull"]) > 0
    assert int(document.facts["stored for live readers"]) > int(document.facts["handled by the one that takes gaps"])


def _schedule(retry: KazooRetry, outage: float) -> float:
    """When a client that was cut off at 0 tries first after the outage."""
    waited: list[float] = []
    retry.sleep_func = waited.append

    def attempt() -> None:
        if sum(waited) < outage:
            raise retry.retry_exceptions[0]

    retry(attempt)
    return sum(waited) - outage


def _most_at_once(outage: float, *, jitter: bool) -> int:
    """Of 200 clients with the back-off that a session has: the most that come in the same 50 ms."""
    config = Config(hosts="127.0.0.1:1")
    times = []
    for _ in range(200):
        client = Client(config, None, Connection(), seen=lambda: 0, granted=lambda _time: None)
        retry = client._connection.retry_sleeper.copy()
        retry.interrupt = None
        if not jitter:
            retry.max_jitter = 0.0
        times.append(_schedule(retry, outage))
        client.close()
    return max(sum(start <= each < start + 0.05 for each in times) for start in times)


def test_jitter_spreads_reconnects() -> None:
    """Two hundred clients after an outage of three seconds: without jitter all come at the same moment."""
    random.seed(5)
    assert _most_at_once(3.0, jitter=False) == 200
    assert _most_at_once(3.0, jitter=True) <= 40
