"""The live tree as tables: who is connected, who subscribes, what waits, what was set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql.datasource import DataSourceReader, InputPartition

from zkms import InvalidArgument
from zkms.discovery import Discovery
from zkms.errors import NodeMissing
from zkms.session import Session
from zkms.tree import Tree
from zkms_spark.source.options import Options

Rows = Iterator[tuple[object, ...]]
SCHEMAS = {
    "clients": "client string, host string, pid bigint, version string, started double",
    "topics": "topic string, subscriptions bigint",
    "subscriptions": "topic string, subscription string, kind string, client string, limit bigint, full boolean",
    "queues": "subscription string, topic string, entries bigint, registered boolean, client string, state string",
    "dead": "subscription string, topic string, entry string, set_aside double, data binary",
}


def table(options: Options) -> str:
    """The name of the table that was asked for."""
    if options.read is None:
        raise InvalidArgument(f"say what to read: .option('read', ...) is one of {', '.join(SCHEMAS)}")
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
        yield c.client, c.host, c.pid, c.version, c.started


def _topics(session: Session, tree: Tree) -> Rows:
    for t in Discovery(session, tree).topics():
        yield t.topic, t.subscriptions


def _subscriptions(session: Session, tree: Tree) -> Rows:
    found = Discovery(session, tree)
    for topic in found.topics():
        for s in found.subscriptions(topic.topic):
            yield s.topic, s.subscription, s.kind, s.client, s.limit, s.full


def _queues(session: Session, tree: Tree) -> Rows:
    for q in Discovery(session, tree).queues():
        yield q.subscription, q.topic, q.entries, q.registered, q.client, q.state


def _dead(session: Session, tree: Tree) -> Rows:
    for subscription in _names(session, tree.dead):
        for topic in _names(session, f"{tree.dead}/{subscription}"):
            shelf = tree.dead_queue(subscription, topic)
            for entry in _names(session, shelf):
                try:
                    data, stat = session.get(f"{shelf}/{entry}")
                except NodeMissing:
                    continue
                yield subscription, topic, entry, stat.ctime / 1000, data


def _names(session: Session, path: str) -> list[str]:
    try:
        return sorted(session.children(path)[0])
    except NodeMissing:
        return []


_TABLES: dict[str, Callable[[Session, Tree], Rows]] = {
    "clients": _clients,
    "topics": _topics,
    "subscriptions": _subscriptions,
    "queues": _queues,
    "dead": _dead,
}
