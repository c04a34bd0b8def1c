"""The trail of everything that leaves messages out, or lets them overtake, on purpose: the audit finds it clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from zkms_cleaner import Cleaner
from zkms_spark.analysis import Analysis, analyse

import zkms
from zkms.cli import main
from zkms.testing import EmbeddedZooKeeper
from zkms.trail.export.export import Exporter, find

pytestmark = pytest.mark.timeout(1800)  # an analysis is minutes of work for a machine that is busy with other tests
ROOT = "/features"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedZooKeeper]:
    """What the trails tell has nothing to do with where the server runs: one kind is enough."""
    with EmbeddedZooKeeper() as running:
        yield running


class Scene:
    """A writer, a reader in another process as far as the trail is concerned, and what they do."""

    def __init__(self, server: EmbeddedZooKeeper, trail: Path, eventually: Callable[..., None]) -> None:
        options: dict[str, Any] = {"root": ROOT, "trail": trail, "cleaner": False}
        self.writer = zkms.connect(server.hosts, client_id="writer", **options)
        self.reader = zkms.connect(server.hosts, client_id="reader", **options)
        self._where = ["--hosts", server.hosts, "--root", ROOT, "--trail", str(trail)]
        self._eventually = eventually

    def close(self) -> None:
        """The end of both trails."""
        self.reader.close()
        self.writer.close()

    def take(self, consumer: zkms.Consumer, count: int) -> list[Any]:
        """So many messages, acked."""
        got: list[Any] = []
        while len(got) < count:
            messages = consumer.fetch(count - len(got), timeout=60)
            assert messages, f"{len(got)} of {count} messages"
            consumer.ack(messages)
            got += [message.data for message in messages]
        return got

    def selectors(self) -> None:
        """Live and durable ones get every third message of a frame, others all of it."""
        heard: list[int] = []
        live = self.reader.subscribe("paint", lambda m: heard.append(m.data), where={"colour": "r"})
        durable = self.reader.subscribe("paint", name="reds", where={"colour": "r"})
        everything = self.writer.subscribe("paint", name="all")
        for _ in range(2):
            with self.writer.publisher("paint", linger=10.0) as publisher:
                for number in range(30):
                    publisher.send(number, headers={"colour": "rgb"[number % 3]})
        assert self.take(durable, 20) == [*range(0, 30, 3)] * 2
        self.take(everything, 60)
        self._eventually(lambda: len(heard) == 20)
        live.unsubscribe()

    def repeated_ids(self) -> None:
        """A message whose id is known is left out of its frame."""
        heard: list[int] = []
        live = self.reader.subscribe("orders", lambda m: heard.append(m.data))
        self.writer.publish("orders", 5, id="5")
        self.writer.publish_many("orders", range(10), id=str)
        self._eventually(lambda: len(heard) == 10)
        assert heard == [5, 0, 1, 2, 3, 4, 6, 7, 8, 9]
        live.unsubscribe()

    def priorities(self) -> None:
        """What is urgent overtakes: in a durable subscription, and within a key of a group."""
        desk = self.reader.subscribe("alarms", name="desk")
        crew = self.reader.subscribe("alarms", group="crew", partitions=2)
        for number in range(20):
            self.writer.publish("alarms", number, key="k", priority=5 if number % 4 == 3 else 0)
        expected = [3, 7, 11, 15, 19, *(number for number in range(20) if number % 4 != 3)]
        for consumer in (desk, crew):
            self._eventually(lambda consumer=consumer: self._at_hand(consumer) == 20)
            assert self.take(consumer, 20) == expected
        # A plain one that still waits is not lost, though a younger urgent one has come.
        self.writer.publish("alarms", 20, key="k")
        self.writer.publish("alarms", 21, key="k", priority=5)
        self._eventually(lambda: self._at_hand(desk) == 2)
        assert self.take(desk, 1) == [21]
        assert sorted(self.take(crew, 2)) == [20, 21]

    def _at_hand(self, consumer: zkms.Consumer) -> int:
        """Messages that it has read and not given out."""
        return sum(lane.inbox._messages for lane in consumer.lanes.values())

    def patterns(self) -> None:
        """The queue of a pattern overflows twice, and is purged by hand; its plain namesake gets all."""
        gaps: list[zkms.Gap] = []
        options: dict[str, Any] = {"name": "audit", "limit": 10, "on_gap": gaps.append}
        self.reader.subscribe("users.*", overflow="drop-oldest", **options).close()
        plain = self.reader.subscribe("users.a", name="audit")
        for number in range(50):
            self.writer.publish("users.a" if number % 2 else "users.b", number)
        pattern = self.reader.subscribe("users.*", overflow="drop-oldest", **options)
        while (message := pattern.get(timeout=60)) is not None:
            message.ack()
            if message.data == 49:
                break
        assert gaps
        pattern.close()
        for number in range(5):
            self.writer.publish("users.b", number)
        self._purge("audit", "users.*")
        pattern = self.reader.subscribe("users.*", overflow="drop-oldest", **options)
        self.writer.publish("users.b", 99)
        assert self.take(pattern, 1) == [99]
        self.take(plain, 25)

    def made_anew(self) -> None:
        """A durable subscription and a group are given up with messages waiting, and subscribed to again."""
        for step, options in enumerate(({"name": "books"}, {"group": "clerks", "partitions": 2})):
            consumer = self.reader.subscribe("sales", **options)  # type: ignore[call-overload]
            self.writer.publish_many("sales", range(10), key=str)
            self.take(consumer, 10)
            consumer.close()
            for bus in (self.reader, self.writer):  # so that its epochs are not the first ones
                bus.subscribe("sales", **options).close()  # type: ignore[call-overload]
            self.writer.publish_many("sales", range(100, 110), key=str)
            self.reader.subscribe("sales", **options, prefetch=1).unsubscribe()  # type: ignore[call-overload]
            again = (self.reader, self.writer)[step].subscribe("sales", **options)  # type: ignore[call-overload]
            self.writer.publish_many("sales", range(200, 220), key=str)
            assert sorted(self.take(again, 20)) == [*range(200, 220)]
            again.close()

    def expiry(self) -> None:
        """The cleaner removes packed frames of which nobody took anything, and what comes later is delivered."""
        self.writer.create_group("offers", "mailers", partitions=2)
        self.reader.subscribe("offers", name="shop").close()
        self.writer.publish_many("offers", range(200), key=str, ttl=0.2)
        cleaner = Cleaner(
            self.writer.parts.session,
            self.writer.parts.tree,
            "cleaner",
            interval=0.1,
            trail=self.writer.parts.context.trail,
        )
        cleaner.start()
        self._eventually(lambda: not any(q.entries for q in self.writer.queues() if q.topic == "offers"))
        cleaner.close()
        self.writer.publish_many("offers", range(200, 220), key=str)
        for options in ({"group": "mailers"}, {"name": "shop"}):
            self.take(self.reader.subscribe("offers", **options), 20)  # type: ignore[call-overload]

    def purged_partition(self) -> None:
        """Of a group's two partitions one is purged before anybody reads; all that is left is delivered."""
        self.writer.create_group("jobs", "workers", partitions=2)
        self.writer.publish_many("jobs", range(40), key=str)
        self._purge("workers#1", "jobs")
        left = sum(queue.messages or 0 for queue in self.writer.queues(count=True) if queue.topic == "jobs")
        assert 0 < left < 40
        worker = self.reader.subscribe("jobs", group="workers")
        self.take(worker, left)
        self.writer.publish_many("jobs", range(40), key=str)
        self.take(worker, 40)

    def _purge(self, lane: str, topic: str) -> None:
        done = CliRunner().invoke(main, ["purge", lane, topic, "--yes", *self._where])
        assert done.exit_code == 0, done.output


def test_the_trail_of_all_that_is_left_out_on_purpose_is_clean(
    spark: Any, server: EmbeddedZooKeeper, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """Selectors, ids, priorities, patterns, overflow, unsubscribing, expiry, purges: kept, and not only undecided."""
    trail, exported = tmp_path / "trail", tmp_path / "exported"
    scene = Scene(server, trail, eventually)
    scene.selectors()
    scene.repeated_ids()
    scene.priorities()
    scene.patterns()
    scene.made_anew()
    scene.expiry()
    scene.purged_partition()
    scene.close()
    Exporter(str(exported)).run(find([trail]))
    analysis: Analysis = analyse(spark, str(exported))
    assert analysis.findings == []
    statuses = {verdict.violation: verdict.status for verdict in analysis.verdicts}
    assert {statuses[name] for name in ("lost", "missed", "duplicated", "out_of_order", "not_owner")} == {"kept"}
    accounted = {(row["topic"], row["sub"], row["what"]) for row in analysis.absent if row["fate"] == "accounted"}
    assert accounted >= {
        ("sales", "books", "unsubscribed"),
        ("sales", "clerks", "unsubscribed"),
        ("offers", "mailers", "purged"),
        ("offers", "shop", "purged"),
        ("jobs", "workers", "purged"),
    }
    assert {sub for _, sub, _ in accounted} >= {"audit (users.*)"}
