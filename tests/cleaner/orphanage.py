"""Orphans made to order."""

from __future__ import annotations

from zkms.bus import Bus
from zkms.tree.entry import entry_prefix, parse_entry
from zkms.tree.records import QueueState, encode
from zkms.zookeeper.operations import Create


def make_orphan(bus: Bus, client: str = "ghost", topic: str = "users", entries: int = 3) -> str:
    """A queue as a dead subscriber leaves it; returns its path."""
    tree, session = bus.parts.tree, bus.parts.session
    for path, data in (
        (tree.topic(topic), b""),
        (tree.subscription(client), b""),
        (tree.queue(client, topic), encode(QueueState(client))),
    ):
        if session.exists(path) is None:
            session.multi([Create(path, data)])
    queue = tree.queue(client, topic)
    for start in range(0, entries, 1000):
        count = min(1000, entries - start)
        session.multi([Create(f"{queue}/{entry_prefix(1, 4)}", b"data", sequence=True)] * count)
    return queue


def messages(bus: Bus, queue: str) -> int:
    """How many messages wait in a queue."""
    return sum(parse_entry(name).messages for name in bus.parts.session.children(queue)[0])


def entries(bus: Bus, queue: str) -> int:
    """How many entries a queue has; 0 for one that does not exist."""
    stat = bus.parts.session.exists(queue)
    return stat.numChildren if stat is not None else 0
