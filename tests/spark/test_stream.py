"""A topic as a stream: each message once in what the query writes, however often batches are done again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType
from zkms_spark.analysis import analyse
from zkms_spark.session import open_session
from zkms_spark.source import ZkmsDataSource
from zkms_spark.source.options import Options
from zkms_spark.source.stream import ZkmsStreamReader

from zkms import Bus, InvalidArgument
from zkms.server.server import Server
from zkms.trail.export.export import Exporter, find

pytestmark = pytest.mark.timeout(1800)
QUERY = Path(__file__).parent / "programs" / "query.py"
KILLS = int(os.environ.get("ZKMS_KILLS", "1"))
"""How often a query is killed: each is a Spark to start. More are for a person who asks for it."""
LONG = 500.0
"""Seconds that a Spark may take to start, on a machine that is busy with other tests."""
SLOW = "Python worker failed to connect back"


def broken_sources() -> list[type[ZkmsDataSource]]:
    """Without one of the two mechanisms each. Made here, so that Spark's Python processes get them whole."""

    class EagerReader(ZkmsStreamReader):
        """Acks what it has planned, before Spark has done anything with it."""

        def partitions(self, start: Any, end: Any) -> Any:
            found = super().partitions(start, end)
            self.commit(end)
            return found

    class UnstableReader(ZkmsStreamReader):
        """Reads what is there, not what the offsets say."""

        def partitions(self, start: Any, end: Any) -> Any:
            latest = self._opened().end()
            return super().partitions(start, {**end, "entry": latest.entry, "message": 0})

    class Eager(ZkmsDataSource):
        @classmethod
        def name(cls) -> str:
            return "eager"

        def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's
            return EagerReader(Options.of(self.options))

    class Unstable(ZkmsDataSource):
        @classmethod
        def name(cls) -> str:
            return "unstable"

        def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's
            return UnstableReader(Options.of(self.options))

    return [Eager, Unstable]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A local Spark, shared by the file's tests."""
    settings = {"spark.driver.memory": "1g", "spark.pyspark.python": sys.executable}
    with open_session("local[1]", settings, small=True) as session:
        for source in (ZkmsDataSource, *broken_sources()):
            session.dataSource.register(source)
        yield session


@pytest.fixture
def options(zookeeper: Server, zookeeper_root: str, bus: Bus) -> dict[str, str]:
    """Of a stream whose subscription is there already."""
    bus.subscribe("users", name="etl").close()
    return {"hosts": zookeeper.hosts, "root": zookeeper_root, "topic": "users", "name": "etl"}


class Crash(Exception):
    """What a query dies of."""


def finish(start: Callable[[], Any]) -> None:
    """Run a query to its end.

    It is started again where Spark's new Python process did not connect within Spark's ten seconds: a machine that is
    busy with other tests takes longer.
    """
    for attempt in range(40):
        query = start()
        try:
            assert query.awaitTermination(LONG)
        except StreamingQueryException as error:
            if SLOW not in str(error) or attempt == 39:
                raise
        else:
            return
        finally:
            query.stop()


class Job:
    """A query that hands its batches over one by one, and dies where it is told to."""

    def __init__(self, spark: Any, options: dict[str, str], checkpoint: Path, source: str = "zkms") -> None:
        self.spark, self.options, self.checkpoint, self.source = spark, options, checkpoint, source
        self.batches: dict[int, list[Any]] = {}
        """What a sink has that writes a batch over the one of the same number."""
        self.attempts: list[int] = []
        self.changed: set[int] = set()
        """Batches that were not the same when they were done again."""

    def run(self, dies_in: int | None = None) -> None:
        """Until all is read that is there, or it dies."""

        def take(rows: Any, number: int) -> None:
            found = rows.collect()
            if self.batches.setdefault(number, found) != found:
                self.changed.add(number)
            self.attempts.append(number)
            self.batches[number] = found
            if number == dies_in:
                raise Crash

        def start() -> Any:
            stream = self.spark.readStream.format(self.source).options(**self.options, maxMessagesPerBatch="10").load()
            writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
            return writer.trigger(availableNow=True).start()

        try:
            finish(start)
        except StreamingQueryException as error:
            if dies_in is None or "Crash" not in str(error):
                raise
        else:
            assert dies_in is None

    def rows(self) -> list[Any]:
        """All that the sink has."""
        return [row for _, batch in sorted(self.batches.items()) for row in batch]

    def texts(self) -> Counter[str]:
        """The data of all that the sink has."""
        return Counter(row.data for row in self.rows())


def texts(first: int, last: int) -> list[str]:
    """What is published, and read."""
    return [str(number) for number in range(first, last)]


def test_a_batch_that_is_done_again_has_the_same_rows(
    spark: Any, bus: Bus, options: dict[str, str], tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """The query dies in the middle of a batch, more is published, and it is started again: each message once."""
    job = Job(spark, options, tmp_path)
    bus.publish_many("users", texts(0, 25))
    job.run(dies_in=1)
    bus.publish_many("users", texts(25, 40))
    bus.publish("users", "40")
    job.run()
    assert [number for number in job.attempts if number < 2] == [0, 1, 1]
    assert job.changed == set()
    assert job.texts() == Counter(texts(0, 41))
    assert all(len(batch) <= 10 for batch in job.batches.values())
    eventually(lambda: bus.queues()[0].entries == 0, what="the acks of what was committed")


def test_messages_are_rows_with_all_that_was_published(
    spark: Any, bus: Bus, options: dict[str, str], tmp_path: Path
) -> None:
    """Text as text, what JSON can hold as JSON, bytes as bytes, and all else with the reason."""
    bus.publish("users", "text", key="k", headers={"a": "b"}, id="mine")
    bus.publish("users", {"n": [1, None]})
    bus.publish("users", b"\x00\xff")
    bus.publish("users", {None: 1})
    job = Job(spark, options, tmp_path)
    job.run()
    text, json, raw, odd = job.rows()
    assert (text.data, text.bytes, text.type, text.topic) == ("text", None, "text", "users")
    assert (text.key, text.headers, text.id, text.reason) == ("k", {"a": "b"}, "mine", None)
    assert (text.producer, text.seq, json.seq) == (bus.client_id, 1, 2)
    assert abs(text.published_at.astimezone(UTC) - datetime.now(UTC)) < timedelta(hours=1)
    assert (json.data, json.type, json.headers) == ('{"n":[1,null]}', "json", None)
    assert (raw.data, raw.bytes, raw.type) == (None, b"\x00\xff", "bytes")
    assert (odd.data, odd.bytes, odd.type, odd.seq) == (None, b"\x81\xc0\x01", "msgpack", 4)
    assert odd.reason.startswith("JSON cannot hold it")
    assert (text.entry, text.place) < (json.entry, json.place) < (raw.entry, raw.place)


def test_each_message_is_once_in_the_files_though_the_query_is_killed(
    spark: Any, bus: Bus, options: dict[str, str], tmp_path: Path, eventually: Callable[..., None]
) -> None:
    """kill -9 of the driver and its JVM, with messages published before, meanwhile and afterwards."""
    checkpoint, sink = tmp_path / "checkpoint", tmp_path / "sink"
    sent: list[str] = []

    def publish(count: int) -> None:
        for _ in range(count):
            sent.append(f"one {len(sent)}")
            bus.publish("users", sent[-1])
        many = [f"many {len(sent) + number}" for number in range(count)]
        bus.publish_many("users", many)
        sent.extend(many)

    def batches() -> int:
        return len(list((checkpoint / "offsets").glob("[0-9]*")))

    command = [sys.executable, str(QUERY), options["hosts"], options["root"], str(checkpoint), str(sink)]
    publish(30)
    for _ in range(KILLS):
        before = batches()
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
        try:
            publish(30)
            eventually(lambda: batches() > before + 2, timeout=LONG, what="a few batches")  # noqa: B023
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        publish(10)

    def last() -> Any:
        stream = spark.readStream.format("zkms").options(**options).load().select("id", "data")
        writer = stream.writeStream.format("json").option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start(str(sink))

    finish(last)
    found = [row.data for row in spark.read.json(str(sink)).collect()]
    assert Counter(found) == Counter(sent)


@pytest.mark.parametrize("source", ["eager", "unstable"])
def test_without_offsets_that_hold_or_acks_that_wait_the_same_run_goes_wrong(
    spark: Any, bus: Bus, options: dict[str, str], tmp_path: Path, source: str
) -> None:
    """Acked before Spark has committed, messages are lost; read past the batch's end, they come twice."""
    job = Job(spark, {**options, "failOnDataLoss": "false"}, tmp_path, source)
    bus.publish_many("users", texts(0, 25))
    job.run(dies_in=1)
    bus.publish_many("users", texts(25, 41))
    job.run()
    rows = job.texts()
    lost, twice = set(texts(0, 41)) - set(rows), {text for text, count in rows.items() if count > 1}
    assert 1 in job.changed
    assert (bool(lost), bool(twice)) == ((True, False) if source == "eager" else (False, True))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": ""}, "invalid name ''"),
        ({"name": "a/b"}, "invalid name 'a/b'"),
        ({"topic": "a/b"}, "invalid topic"),
        ({"maxMessagesPerBatch": "0"}, "maxMessagesPerBatch must be a whole number"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is 'true' or 'false'"),
        ({"partitions": "none"}, "partitions must be a whole number"),
        ({"takeover": "please"}, "takeover is 'true' or 'false'"),
    ],
)
def test_each_bad_option_of_a_stream_has_its_sentence(given: dict[str, str], sentence: str) -> None:
    """Said before anything is connected."""
    with pytest.raises(InvalidArgument, match=sentence):
        Options.of({"hosts": "zk:2181", **given})


def test_the_trails_of_sink_and_source_account_for_every_message(
    spark: Any, options: dict[str, str], tmp_path: Path
) -> None:
    """Published by a batch job and read by a stream, both recording: nothing waits in the report, and all is kept."""
    trail = {"trail": str(tmp_path / "trail")}
    given = {name: value for name, value in options.items() if name != "name"}
    for job in ("one", "two"):
        spark.range(20).write.format("zkms").options(**given, **trail, id=job).mode("append").save()
    job = Job(spark, options | trail, tmp_path / "checkpoint")
    job.run()
    assert len(job.rows()) == 40
    Exporter(str(tmp_path / "exported")).run(find([tmp_path / "trail"]))
    report = analyse(spark, str(tmp_path / "exported"))
    assert (report.messages, report.totals["of_unknown"], report.overall) == (40, 0, "kept"), report.findings
    assert not any(run["killed"] for run in report.runs)
    (subscription,) = [row for row in report.subscriptions if row["sub"] == "etl"]
    assert (subscription["messages"], subscription["at_end"]) == (40, 0)
    assert {"staged-one", "staged-two"} <= {node["node"] for node in report.nodes}
