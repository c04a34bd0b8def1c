"""A few cells of `make faults`: a leader that is killed, under every workload, and one that is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.campaign import NEMESES, WORKLOADS, Campaign
from faults.cell import Cell
from faults.ensemble import Ensemble, ensemble
from faults.orders import Workload

SECONDS = 3.0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three of them, with wires that can be cut."""
    with ensemble("embedded", "wires", tmp_path_factory.mktemp("ensemble")) as running:
        yield running


def cell(nemesis: str, workload: Workload, servers: Ensemble, tmp_path: Path) -> Cell:
    """Run one."""
    campaign = Campaign("embedded", SECONDS, 1, False, tmp_path / "kept", print)
    return campaign.cell(NEMESES[nemesis](), workload, servers, tmp_path)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_leader_that_is_killed_breaks_no_guarantee(workload: Workload, servers: Ensemble, tmp_path: Path) -> None:
    """Nothing lost, duplicated or out of order; no cache serves what it should not."""
    found = cell("leader-killed", workload, servers, tmp_path)
    assert found.holds, found.problems
    assert found.published > 0
    assert found.delivered >= found.published


def test_a_leader_on_the_wrong_side_of_a_partition_breaks_no_guarantee(servers: Ensemble, tmp_path: Path) -> None:
    """Its clients are still connected to it, and are told nothing that does not hold."""
    found = cell("majority-partition", "durable", servers, tmp_path)
    assert found.holds, found.problems
    assert found.published > 0
