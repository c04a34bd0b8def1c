"""The data source `zkms`: rows become messages, each once, however often tasks, jobs and batches are done again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import Row
from zkms_spark.session import open_session
from zkms_spark.source import ZkmsDataSource
from zkms_spark.source.options import Options
from zkms_spark.source.rows import check_schema, message
from zkms_spark.source.tables import TreeReader

from zkms import Bus, InvalidArgument, Subscription
from zkms.message import frame as frames
from zkms.server.server import Server
from zkms.tree.records import ClientState, DeadLetter, Registration, encode
from zkms.zookeeper.operations import Create

pytestmark = pytest.mark.timeout(1200)
ROWS = 100_000


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A local Spark whose tasks are tried four times."""
    settings = {"spark.driver.memory": "1g", "spark.pyspark.python": sys.executable}
    with open_session("local[2,4]", settings, small=True) as session:
        session.dataSource.register(ZkmsDataSource)
        yield session


@pytest.fixture
def options(zookeeper: Server, zookeeper_root: str) -> dict[str, str]:
    """Where the test's topics are."""
    return {"hosts": zookeeper.hosts, "root": zookeeper_root, "topic": "users"}


def received(subscription: Subscription, count: int) -> list[Any]:
    """So many messages' data, and what comes right behind them."""
    found: list[Any] = []
    deadline = time.monotonic() + 120
    while len(found) < count and time.monotonic() < deadline:
        found += [each.data for each in subscription.fetch(10_000, timeout=1.0)]
    return found + [each.data for each in subscription.fetch(10_000, timeout=0.5)]


def test_every_row_is_once_on_the_topic_though_every_task_fails_at_first(
    spark: Any, bus: Bus, options: dict[str, str]
) -> None:
    """Each task fails after it has staged nearly all of its rows, and is tried again."""

    def stumble(numbers: Iterator[int]) -> Iterator[tuple[int, str]]:
        from pyspark import TaskContext

        for number in numbers:
            yield number, f"k{number}"
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise OSError("the first attempt fails")

    users = bus.subscribe("users", limit=2 * ROWS)
    rows = spark.sparkContext.range(ROWS, numSlices=4).mapPartitions(stumble)
    frame = spark.createDataFrame(rows, "id bigint, key string")
    frame.write.format("zkms").options(**options).mode("append").save()
    found = received(users, ROWS)
    assert len(found) == ROWS
    assert sorted(each["id"] for each in found) == list(range(ROWS))


def test_a_job_that_is_run_again_under_its_id_publishes_nothing_more(
    spark: Any, bus: Bus, options: dict[str, str]
) -> None:
    """An ETL job that is started again does not invalidate the caches again."""
    users, orders = bus.subscribe("users"), bus.subscribe("orders")
    data = [("users", "a", "1"), ("orders", "b", "2"), ("users", "c", None)]
    rows = spark.createDataFrame(data, "topic string, data string, key string")
    given = {name: value for name, value in options.items() if name != "topic"}
    for _ in range(2):
        rows.coalesce(1).write.format("zkms").options(**given, id="nightly").mode("append").save()
    assert received(users, 2) == ["a", "c"]
    assert received(orders, 1) == ["b"]


def test_a_batch_of_a_stream_that_is_done_again_is_published_once(
    spark: Any, bus: Bus, options: dict[str, str], tmp_path: Path
) -> None:
    """Killed after the commit and before Spark has written that down: the last batch comes again."""
    users = bus.subscribe("users")
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        stream = spark.readStream.schema("id bigint").json(str(source)).writeStream.format("zkms")
        query = stream.options(**options, checkpointLocation=str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(600)
        assert query.exception() is None

    (source / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
    run()
    assert received(users, 2) == [{"id": 1}, {"id": 2}]
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    (source / "2.json").write_text('{"id": 3}\n')
    run()
    assert received(users, 1) == [{"id": 3}]


def test_the_live_tree_can_be_read_as_tables(spark: Any, bus: Bus, options: dict[str, str]) -> None:
    """Clients, topics, subscriptions, queues and what was set aside."""
    users = bus.subscribe("users", ack="manual")
    bus.publish("users", "waiting")
    given = {name: value for name, value in options.items() if name != "topic"}

    def table(name: str) -> list[Any]:
        return list(spark.read.format("zkms").options(**given, read=name).load().collect())

    assert [row.client for row in table("clients")] == [bus.client_id]
    assert table("topics") == [Row(topic="users", subscriptions=1)]
    [subscription] = table("subscriptions")
    assert (subscription.topic, subscription.subscription, subscription.kind) == ("users", users.id, "live")
    [queue] = table("queues")
    assert (queue.topic, queue.entries, queue.registered) == ("users", 1, True)
    assert table("dead") == []


def test_dead_letters_are_read_decoded(
    spark: Any, bus: Bus, options: dict[str, str], eventually: Callable[..., None]
) -> None:
    """With the reason and all that was published; of what is no message, the bytes as they are."""
    jobs = bus.subscribe("jobs", group="workers", partitions=1)
    bus.publish("jobs", {"n": 1}, key="k", headers={"a": "b"}, id="mine")
    message = jobs.get(timeout=60)
    assert message is not None
    message.reject("never")
    bus.parts.session.multi([Create(f"{bus.parts.tree.queue('workers#0', 'jobs')}/stranger", b"\x00raw")])
    eventually(lambda: jobs.get(timeout=0.1) is None and len(bus.dead_letters()) == 2, timeout=120)
    given = {name: value for name, value in options.items() if name != "topic"}
    rows = spark.read.format("zkms").options(**given, read="dead").load().collect()
    letter, stranger = sorted(rows, key=lambda row: row.producer is None)
    assert (letter.data, letter.bytes, letter.type, letter.headers) == ('{"n":1}', None, "json", {"a": "b"})
    assert (letter.id, letter.key, letter.topic, letter.subscription) == ("mine", "k", "jobs", "workers")
    assert (letter.reason, letter.attempts, letter.producer, letter.seq) == ("rejected: never", 1, bus.client_id, 1)
    assert letter.published_at <= letter.set_aside
    assert (stranger.data, stranger.bytes, stranger.id) == (None, b"\x00raw", "stranger")
    assert "not a name that zkms gives" in stranger.reason


def test_what_no_column_can_hold_stops_no_table(bus: Bus, options: dict[str, str]) -> None:
    """A dead letter that JSON cannot hold, and the moments and numbers of other programs: null, or bytes."""
    jobs = bus.subscribe("jobs", name="audit")
    bus.publish("jobs", {(1, 2): 3})
    read = jobs.get(timeout=60)
    assert read is not None
    read.reject("never")
    letter = DeadLetter(frames.encode("p", 1, 1.0, [frames.pack("x")]), "odd", 1e300, 2**63)
    bus.parts.session.multi(
        [
            Create(f"{bus.parts.tree.dead_queue('audit', 'jobs')}/d.1.9.", encode(letter), sequence=True),
            Create(bus.parts.tree.client("odd"), encode(ClientState("host", 2**63, "1", float("1e300")))),
            Create(bus.parts.tree.registration("jobs", "odd"), encode(Registration("odd", 2**63, "durable"))),
        ]
    )
    given = {name: value for name, value in options.items() if name != "topic"}

    def table(name: str) -> list[Any]:
        reader = TreeReader(Options.of({**given, "read": name}))
        return list(reader.read(None))  # type: ignore[arg-type]

    first, second = table("dead")
    assert first[7:10] == (None, msgspec.msgpack.encode({(1, 2): 3}), "msgpack")
    assert (second[3], second[5], second[6], second[7]) == ("odd", None, None, "x")
    assert ("odd", "host", None, "1", None) in table("clients")
    assert ("jobs", "odd", "durable", "odd", None, False) in table("subscriptions")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"hosts": ""}, "say where ZooKeeper is"),
        ({"hosts": "zk:port"}, "give 'host:port,host:port'"),
        ({"tpoic": "users"}, "unknown option 'tpoic'"),
        ({"topic": "a/b"}, "invalid topic 'a/b'"),
        ({"id": "a/b"}, "invalid id 'a/b'"),
        ({"root": "zkms"}, "invalid root 'zkms'"),
        ({"if_nobody": "panic"}, "if_nobody is 'raise' or 'drop'"),
        ({"max_staged_bytes": "lots"}, "max_staged_bytes must be a whole number"),
        ({"timeout": "soon"}, "timeout must be a number of seconds"),
        ({"user": "ann"}, "both options user and password"),
        ({"path": "/tmp"}, "zkms has no paths"),
    ],
)
def test_each_bad_option_has_its_sentence(given: dict[str, str], sentence: str) -> None:
    """Said before anything is connected."""
    with pytest.raises(InvalidArgument, match=sentence):
        Options.of({"hosts": "zk:2181", **given})


def test_what_spark_is_told_wrongly_it_says(spark: Any, bus: Bus, options: dict[str, str]) -> None:
    """The sentence is in Spark's error, also where it comes from the driver's commit; nothing is left staged."""
    rows = spark.range(3)
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        rows.write.format("zkms").options(**options).mode("overwrite").save()
    with pytest.raises(Exception, match="say what to read"):
        spark.read.format("zkms").options(hosts=options["hosts"]).load()
    with pytest.raises(Exception, match="0 of 3 messages were published: nobody subscribes to 'users'"):
        rows.write.format("zkms").options(**options).mode("append").save()
    rows.write.format("zkms").options(**options, if_nobody="drop").mode("append").save()
    staged = bus.parts.session.children(bus.parts.tree.staged)[0]
    assert [name for job in staged for name in bus.parts.session.children(bus.parts.tree.staged_job(job))[0]] == []


def test_rows_that_cannot_be_messages_are_refused_by_their_schema(spark: Any) -> None:
    """With the column's name."""
    for ddl, sentence in (
        ("data string, key int", "'key' must be a string, not int"),
        ("data string, headers map<string,int>", "'headers' must be a map<string,string>"),
        ("key string", "there is nothing to publish"),
    ):
        with pytest.raises(InvalidArgument, match=sentence):
            check_schema(spark.createDataFrame([], ddl).schema, "users")
    with pytest.raises(InvalidArgument, match="say which topic"):
        check_schema(spark.createDataFrame([], "data string").schema, None)


def test_a_row_becomes_what_json_can_hold() -> None:
    """Without a column `data`, all others make up the message."""
    moment = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
    values = {"id": 1, "at": moment, "price": Decimal("1.50"), "raw": bytearray(b"x"), "inner": Row(n=[1, None])}
    row = Row(topic="users", key="k", headers={"a": "b"}, **values)
    topic, data, key, headers = message(row, None)
    assert (topic, key, headers) == ("users", "k", {"a": "b"})
    assert data == {"id": 1, "at": "2026-11-16T09:30:00Z", "price": "1.50", "raw": b"x", "inner": {"n": [1, None]}}
    assert message(Row(data=b"raw", topic="other"), "users")[:2] == ("users", b"raw")
    with pytest.raises(InvalidArgument, match="a row has no topic"):
        message(Row(data=1, topic=None), None)
