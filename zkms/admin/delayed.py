"""Counts delayed messages by topic, from the names of their znodes alone."""

from __future__ import annotations

import msgspec

from zkms.tree.delayed_names import parse_bucket, parse_delayed
from zkms.tree.paths import Tree
from zkms.zookeeper.recipes import children_of, read_many
from zkms.zookeeper.session import Session

AT_ONCE = 16
"""Buckets listed at a time: bounds the memory that this takes."""


class DelayedInfo(msgspec.Struct, frozen=True):
    """The delayed messages of a topic: their number, and when the first is due, in seconds since the epoch."""

    topic: str
    messages: int
    next_due: float


def delayed_by_topic(session: Session, tree: Tree) -> list[DelayedInfo]:
    """Return every topic with delayed messages; the one whose first message is due soonest comes first."""
    found: dict[str, tuple[int, int]] = {}
    buckets = [begins for name in children_of(session, tree.delayed) if (begins := parse_bucket(name)) is not None]
    for start in range(0, len(buckets), AT_ONCE):
        part = buckets[start : start + AT_ONCE]
        for begins, (names, _) in read_many(session, part, lambda b: session.children_async(tree.bucket(b))).items():
            for item in (parse_delayed(begins, name) for name in names):
                if item is not None:
                    messages, due = found.get(item.topic, (0, item.due))
                    found[item.topic] = messages + item.messages, min(due, item.due)
    infos = [DelayedInfo(topic, messages, due / 1000) for topic, (messages, due) in found.items()]
    return sorted(infos, key=lambda info: (info.next_due, info.topic))
