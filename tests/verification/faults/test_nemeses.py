"""A few cells of `make faults`: leaders killed or cut off, embedded and in containers, with Spark as a second judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from verification.faults.campaign import NEMESES, Campaign
from verification.faults.cell import Cell
from verification.faults.ensemble import Ensemble, Where, ensemble
from verification.faults.orders import Workload

SHORT = 3.0
LONG = 7.0
"""Seconds: servers take 2.5 to notice that one of them says nothing any more, and a fault lasts for less than half."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three of them, with wires that can be cut."""
    with ensemble("embedded", "wires", tmp_path_factory.mktemp("ensemble")) as running:
        yield running


def run(
    nemesis: str,
    workload: Workload,
    seconds: float,
    servers: Ensemble,
    tmp_path: Path,
    where: Where = "embedded",
    *,
    trail: bool = False,
) -> Cell:
    """One cell."""
    campaign = Campaign(where, seconds, 1, trail, tmp_path / "kept", print)
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


@pytest.mark.parametrize("workload", ["live", "durable"])
def test_spark_s_audit_of_the_trails_agrees(workload: Workload, servers: Ensemble, tmp_path: Path) -> None:
    """A consumer and a publisher are killed: two judges that share no code find nothing broken."""
    found = run("client-killed", workload, SHORT, servers, tmp_path, trail=True)
    assert found.holds, found.problems
    assert found.published > 0
    assert found.audit in ("kept", "undecided")  # the last lines of those who were killed may be missing


@pytest.mark.containers
@pytest.mark.usefixtures("docker_needed")
def test_a_leader_s_container_that_is_killed_breaks_no_guarantee(tmp_path: Path) -> None:
    """The same with servers in containers, on a network of their own."""
    with ensemble("containers", "plain", tmp_path) as servers:
        found = run("leader-killed", "group", SHORT, servers, tmp_path, "containers")
    assert found.holds, found.problems
    assert found.published > 0
    assert found.delivered >= found.published
