"""The live tree as tables: who is connected, who subscribes, what waits, what was set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from pyspark.sql.datasource import DataSourceReader, InputPartition

from zkms import InvalidArgument
from zkms.admin.dead_letters import DeadLetters
from zkms.admin.discovery import Discovery
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session
from zkms_spark.source.messages import content
from zkms_spark.source.options import Options

Rows = Iterator[tuple[object, ...]]
AT_ONCE = 200
"""Dead letters that are in memory at a time."""
SCHEMAS = {
    "clients": "client string, host string, pid bigint, version string, started timestamp",
    "topics": "topic string, subscriptions bigint",
    "subscriptions": "topic string, subscription string, kind string, client string, limit bigint, full boolean",
    "queues": "subscription string, topic string, entries bigint, registered boolean, client string, state string",
    "dead": (
        "subscription string, topic string, id string, reason string, error string, attempts bigint, "
        "set_aside timestamp, data string, bytes binary, type string, key string, headers map<string,string>, "
        "published_at timestamp, producer string, seq bigint, codec string, entry string"
    ),
}


def table(options: Options) -> str:
    """The name of the table that was asked for."""
    if options.read is None:
        raise InvalidArgument(
            f"say what to read: .option('read', ...) is one of {', '.join(SCHEMAS)}; or, with readStream, "
            "the options topic and name"
        )
    if options.read not in SCHEMAS:
        raise InvalidArgument(f"there is no {options.read!r:.60} to read: {', '.join(SCHEMAS)} are there")
    return options.read


class TreeReader(DataSourceReader):
    """Reads one table as it is now, in one task. Makes nothing, and does not show up among the clients."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.table = table(options)

    def read(self, partition: InputPartition) -> Rows:  # noqa: ARG002 - there is one
        """In a task."""
        session = Session(self.options.config())
        session.start()
        try:
            yield from _TABLES[self.table](session, Tree(self.options.root))
        finally:
            session.close()


def _clients(session: Session, tree: Tree) -> Rows:
    for c in Discovery(session, tree).clients():
        yield c.client, c.host, _whole(c.pid), c.version, _moment(c.started)


def _topics(session: Session, tree: Tree) -> Rows:
    for t in Discovery(session, tree).topics():
        yield t.topic, t.subscriptions


def _subscriptions(session: Session, tree: Tree) -> Rows:
    found = Discovery(session, tree)
    for topic in found.topics():
        for s in found.subscriptions(topic.topic):
            yield s.topic, s.subscription, s.kind, s.client, _whole(s.limit), s.full


def _queues(session: Session, tree: Tree) -> Rows:
    for q in Discovery(session, tree).queues():
        yield q.subscription, q.topic, q.entries, q.registered, q.client, q.state


def _dead(session: Session, tree: Tree) -> Rows:
    letters = DeadLetters(session, tree)
    places = letters.find()
    for start in range(0, len(places), AT_ONCE):
        for letter in letters.read(places[start : start + AT_ONCE]):
            if letter.foreign:  # no message at all: its bytes are kept as they are
                what: tuple[object, ...] = (None, letter.data, "bytes", *[None] * 6)
            else:
                sent = (_moment(letter.published_at), letter.producer, letter.seq, letter.codec)
                what = (*content(letter.data, letter.codec)[:3], letter.key, letter.headers, *sent)
            why = (letter.reason, letter.error, _whole(letter.attempts), _moment(letter.at))
            yield letter.subscription, letter.topic, letter.id, *why, *what, letter.place.name


def _moment(seconds: float) -> datetime | None:
    """None for one that no calendar has: another program may have written it."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _whole(number: int) -> int | None:
    """None for one that a column of Spark's has no room for."""
    return number if -(2**63) <= number < 2**63 else None


_TABLES: dict[str, Callable[[Session, Tree], Rows]] = {
    "clients": _clients,
    "topics": _topics,
    "subscriptions": _subscriptions,
    "queues": _queues,
    "dead": _dead,
}
