"""Readers killed right after ZooKeeper has stored their acks: the audit says "undecided", and never "lost"."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from zkms_spark.analysis import analyse

import zkms
from zkms.server.server import Server
from zkms.trail.export.export import Exporter, find

pytestmark = pytest.mark.timeout(1200)
READER = Path(__file__).parent / "programs" / "reader.py"
IDLE = 3.0
"""Seconds without a line, more than the audit allows clocks to be apart."""


@pytest.mark.parametrize("kind", ["durable", "place"])
def test_what_a_killed_reader_has_acked_and_not_told_of_is_undecided(
    spark: Any, zookeeper: Server, zookeeper_root: str, tmp_path: Path, kind: str, eventually: Callable[..., None]
) -> None:
    """Also where it had been silent for long before: lines are missing since then, and not only for a while."""
    trail = tmp_path / "trail"
    command = [sys.executable, str(READER), kind, zookeeper.hosts, zookeeper_root, str(trail)]
    with zkms.connect(zookeeper.hosts, root=zookeeper_root, cleaner=False, trail=trail, client_id="writer") as writer:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            began = time.monotonic()
            eventually(lambda: time.monotonic() > began + IDLE)
            writer.publish_many("users", ["a", "b"])
            assert process.wait(60) == -signal.SIGKILL
        eventually(lambda: writer.queues()[0].entries == 0)  # they were acked
        reader = writer.subscribe("users", name="etl", takeover=True)
        writer.publish("users", "c")
        message = reader.get(timeout=60)
        assert message is not None
        assert message.data == "c"
        message.ack()
    Exporter(str(tmp_path / "exported")).run(find([trail]))
    report = analyse(spark, str(tmp_path / "exported"))
    assert [(row["violation"], row["verdict"], row["messages"]) for row in report.findings] == [
        ("lost", "undecided", 2)
    ], report.findings
