"""Trails of durable subscriptions, groups and delayed messages in a storm: the audit finds them clean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from zkms_spark.analysis import Analysis, analyse
from zkms_spark.schema import read_trail

import zkms
from tests.guarantees.storm import Storm
from tests.support import delayed_load as load
from zkms.testing import EmbeddedZooKeeper
from zkms.trail.export.export import Exporter, find

pytestmark = pytest.mark.timeout(1800)  # an analysis is minutes of work for a machine that is busy with other tests


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedZooKeeper]:
    """One that a test may restart."""
    with EmbeddedZooKeeper() as running:
        yield running


def retries(server: EmbeddedZooKeeper, trail: Path) -> None:
    """A durable subscription and a group with naks, rejections, letters that are requeued, and a takeover."""
    options: dict[str, Any] = {"trail": trail, "cleaner": False}
    with zkms.connect(server.hosts, "/retries", **options) as bus:
        bus.create_group("work", "workers", partitions=2)
        bus.subscribe("work", name="audit").close()
        bus.publish_many("work", range(40), key=lambda number: str(number % 5))
        with zkms.connect(server.hosts, "/retries", **options) as reader:
            audit = reader.subscribe("work", name="audit")
            for message in audit.fetch(15, timeout=60):
                message.ack()
            other = bus.subscribe("work", name="audit", takeover=True)
            acked = 15
            while acked < 40:
                for message in other.fetch(40, timeout=60):
                    message.ack()
                    acked += 1
        worker = bus.subscribe("work", group="workers", max_attempts=2, backoff=0.01)
        done: Counter[int] = Counter()
        while sum(done.values()) < 40:
            message = worker.get(timeout=60)
            assert message is not None
            if message.data == 7:
                message.reject("never")
            elif message.data % 10 == 3:
                message.nak(error="not now")  # the second time it is a dead letter
                if message.attempts < 2:
                    continue
            else:
                message.ack()
            done[message.data] += 1
        letters = bus.dead_letters()
        assert {letter.data for letter in letters} == {3, 7, 13, 23, 33}
        for letter in letters:
            bus.requeue(letter)
        for _ in letters:
            message = worker.get(timeout=60)
            assert message is not None
            message.ack()


def test_the_trail_of_kept_and_delayed_messages_in_a_storm_is_clean(
    spark: Any, server: EmbeddedZooKeeper, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """Members and leaders killed, paused and replaced, ZooKeeper restarted; naks, dead letters, requeued; delays."""
    trail, notes, exported = tmp_path / "trail", tmp_path / "notes", tmp_path / "exported"
    notes.mkdir()
    storm = Storm(server, "/storm", notes, messages=1_000, seed=3, attempts=20, trail=trail)
    verdict = storm.run(members=3, seconds=5, restarts=1, pause=4.0)
    assert verdict.holds, (verdict, dict(storm.done))
    outcome = load.run(server.hosts, "/delays", 200, 3.0, trail=trail)
    assert (outcome.lost, outcome.twice, outcome.early) == (0, 0, 0)
    retries(server, trail)
    Exporter(str(exported)).run(find([trail]))
    analysis: Analysis = analyse(spark, str(exported))
    assert [row for row in analysis.findings if row["verdict"] == "violation"] == []
    statuses = {verdict.violation: verdict.status for verdict in analysis.verdicts}
    assert {statuses[name] for name in ("duplicated", "out_of_order", "early", "not_owner")} == {"kept"}
    seen = {row.event for row in read_trail(spark, str(exported)).select("event").distinct().collect()}
    assert seen >= {"delayed", "due", "delivered", "redelivered", "acked", "nacked", "dead", "requeued"}
