"""A group in a storm, at a scale that a test-suite can afford; storm.py runs the large one by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guarantees.storm import Storm
from zkms.server.server import Server

pytestmark = pytest.mark.on_one_server


def test_a_group_in_a_storm_loses_nothing_and_keeps_the_order_of_each_key(
    zookeeper: Server, zookeeper_root: str, tmp_path: Path
) -> None:
    """Ten producers, fifty keys; members killed, paused, added and removed every second, ZooKeeper restarted."""
    storm = Storm(zookeeper, zookeeper_root, tmp_path, messages=3_000, seed=1, attempts=20)
    verdict = storm.run(members=3, seconds=8, restarts=1)
    assert verdict.holds, (verdict, dict(storm.done))
    assert storm.done["ZooKeeper restarted"] == 1
