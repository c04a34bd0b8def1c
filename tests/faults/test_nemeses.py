"""A few cells of `make faults`: a leader that is killed, and one that is cut off from its followers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.campaign import NEMESES, Campaign
from faults.cell import Cell
from faults.ensemble import Ensemble, ensemble
from faults.orders import Workload

SHORT = 3.0
LONG = 7.0
"""Seconds: servers take 2.5 to notice that one of them says nothing any more, and a fault lasts for less than half."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three of them, with wires that can be cut."""
    with ensemble("embedded", "wires", tmp_path_factory.mktemp("ensemble")) as running:
        yield running


def run(nemesis: str, workload: Workload, seconds: float, servers: Ensemble, tmp_path: Path) -> Cell:
    """One cell."""
    campaign = Campaign("embedded", seconds, 1, False, tmp_path / "kept", print)
    return campaign.cell(NEMESES[nemesis](), workload, servers, tmp_path)


@pytest.mark.parametrize("workload", ["live", "group", "delayed", "cache"])
def test_a_leader_that_is_killed_breaks_no_guarantee(workload: Workload, servers: Ensemble, tmp_path: Path) -> None:
    """Nothing lost, duplicated or out of order; no cache serves what it should not."""
    found = run("leader-killed", workload, SHORT, servers, tmp_path)
    assert found.holds, found.problems
    assert found.published > 0
    assert found.delivered >= found.published


def test_a_leader_on_the_wrong_side_of_a_partition_breaks_no_guarantee(servers: Ensemble, tmp_path: Path) -> None:
    """Its clients are still connected to it, and are told nothing that does not hold."""
    found = run("majority-partition", "durable", LONG, servers, tmp_path)
    assert found.holds, found.problems
    assert found.published > 0
    assert found.zookeeper > 1.0, "nobody could write until the others had chosen a new leader"
