"""Finds what is past its time: expired messages, remembered ids, topics and groups that nobody uses.

The name of an entry tells when it expires; entries of a subscription with a `max_age` are looked at from the oldest on,
until one is young enough. Ids are found by their log, a znode for each frame that had any: no id is ever looked at by
itself. A topic is removed when nobody has subscribed for an hour; the list of patterns is written in the same
transaction, so that a publisher that still knows the topic is refused. Groups and durable subscriptions are kept for
ever, unless the cleaner is told otherwise.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping

from zkms.names import is_pattern
from zkms.publish.audience import patterns_in
from zkms.tree.entry import parse_entry
from zkms.tree.paths import Tree, hashes_in, id_log_time, queues_of, subscription_of
from zkms.tree.records import Ledger, Patterns, QueueState, Registration, decode_or_none, encode
from zkms.zookeeper.operations import Delete, Operation, SetData
from zkms.zookeeper.recipes import absent, children_of, grandchildren_of, read_many, stats_of
from zkms.zookeeper.session import Session
from zkms.zookeeper.wire import Stat
from zkms_cleaner.orphans import OrphanFinding

log = logging.getLogger("zkms.cleaner")
ID_WINDOW = 600.0
"""Seconds for which a message id is remembered, at the least."""
TOPIC_IDLE = 3600.0
"""Seconds after which a topic without subscriptions is forgotten."""
AT_A_TIME = 500
"""Entries or logs that one finding removes."""
LOOK_AHEAD = 64


class Leftovers:
    """Finds what is past its time, each with the operations that remove it."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        *,
        unused_after: float | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._tree = tree
        self._unused_after = unused_after
        self._now = wall_clock

    def find(self, topics: Mapping[str, Stat]) -> list[tuple[OrphanFinding, list[Operation]]]:
        """What is past its time now, and the operations that remove it; `topics` as they were just listed."""
        # Listed before registrations are read: whoever makes both does so in one transaction.
        listed = grandchildren_of(self._session, self._tree.groups)
        pairs = [(topic, name) for name, (own, _) in listed.items() for topic in own]
        kept = self._registrations(pairs)
        return [
            *self._expired(kept),
            *self._ids(),
            *self._groups([pair for pair in pairs if pair not in kept]),
            *self._nameless({name: stat for name, (own, stat) in listed.items() if not own}),
            *self._unused_groups(kept),
            *self._shelves(),
            *self._topics(topics),
        ]

    def _registrations(self, pairs: list[tuple[str, str]]) -> dict[tuple[str, str], Registration]:
        """Durable subscriptions and groups, by topic and name."""
        read = read_many(self._session, pairs, lambda pair: self._session.get_async(self._tree.registration(*pair)))
        found = {}
        for pair, (data, _) in read.items():
            registration = decode_or_none(data, Registration)
            if registration is None:
                log.warning("%s is no registration of ours: left alone", self._tree.registration(*pair))
            found[pair] = registration or Registration("", 1, "durable")
        return found

    # -- messages ------------------------------------------------------------------------------------------------

    def _expired(self, kept: dict[tuple[str, str], Registration]) -> Iterator[tuple[OrphanFinding, list[Operation]]]:
        queues = {
            self._tree.queue(queue, topic): registration.max_age
            for (topic, name), registration in kept.items()
            for queue in queues_of(name, registration)
        }
        states = read_many(self._session, queues, self._session.get_async)
        waiting = [queue for queue, (_, stat) in states.items() if stat.numChildren]
        listed = read_many(self._session, waiting, self._session.children_async)
        now = self._now()
        for queue, (names, _) in listed.items():
            entries = sorted(parse_entry(name) for name in names)
            over = [entry for entry in entries if entry.expires and entry.expires < now]
            reason = "expired: its time to live was over"
            if queues[queue]:
                aged = self._aged(queue, [entry.name for entry in entries if not entry.foreign], now - queues[queue])
                over = sorted({*over, *(entry for entry in entries if entry.name in aged)})
                reason = f"expired: it waited for more than {queues[queue]:g} s" if aged else reason
            if not over:
                continue
            over = over[:AT_A_TIME]
            data, stat = states[queue]
            state = decode_or_none(data, QueueState)
            if state is None:
                continue
            finding = OrphanFinding("expired", queue, reason, len(over), version=stat.version)
            marked = state.expire([entry.sequence for entry in over], reason)
            mark = SetData(queue, encode(marked), stat.version)
            yield finding, [mark, *(Delete(f"{queue}/{entry.name}") for entry in over)]

    def _aged(self, queue: str, names: list[str], before: float) -> set[str]:
        """The entries created before that time: they are created in order, so the first young one ends the search."""
        found: set[str] = set()
        for start in range(0, min(len(names), AT_A_TIME), LOOK_AHEAD):
            some = names[start : start + LOOK_AHEAD]
            stats = stats_of(self._session, some, lambda name: f"{queue}/{name}")
            old = {name for name, stat in stats.items() if stat.ctime / 1000 < before}
            found |= old
            if len(old) < len(some):
                break
        return found

    # -- ids -----------------------------------------------------------------------------------------------------

    def _ids(self) -> Iterator[tuple[OrphanFinding, list[Operation]]]:
        before = self._now() - ID_WINDOW
        for topic, (names, _) in grandchildren_of(self._session, self._tree.ids).items():
            logs = [name for name in names if 0 <= id_log_time(name) < before][:AT_A_TIME]
            parent = f"{self._tree.ids}/{topic}"
            read = read_many(self._session, [f"{parent}/{name}" for name in logs], self._session.get_async)
            for path, (data, _) in read.items():
                ids = [Delete(each) for each in hashes_in(parent, data)]
                yield OrphanFinding("ids", path, f"older than {ID_WINDOW:g} s", len(ids)), [*ids, Delete(path)]

    # -- subscriptions and topics --------------------------------------------------------------------------------

    def _groups(self, orphaned: list[tuple[str, str]]) -> Iterator[tuple[OrphanFinding, list[Operation]]]:
        """Members and ledgers of subscriptions that are gone, with the proof that nobody has registered since."""
        topics = stats_of(self._session, {topic for topic, _ in orphaned}, self._tree.topic)
        for topic, name in orphaned:
            missing = self._tree.registration(topic, name) if topic in topics else self._tree.topic(topic)
            group = self._tree.group(name, topic)
            finding = OrphanFinding("group", group, "its subscription is gone")
            yield finding, [*absent(missing), *self._below(group)]

    def _nameless(self, empty: dict[str, Stat]) -> Iterator[tuple[OrphanFinding, list[Operation]]]:
        for name, stat in empty.items():
            path = f"{self._tree.groups}/{name}"
            yield OrphanFinding("nothing", path, "has no subscriptions", version=stat.cversion), [Delete(path)]

    def _below(self, group: str) -> list[Operation]:
        paths = [
            f"{group}/{part}/{name}"
            for part in ("members", "lanes")
            for name in children_of(self._session, f"{group}/{part}")
        ]
        parts = [f"{group}/{part}" for part in children_of(self._session, group)]
        return [Delete(path) for path in (*paths, *parts, group)]

    def _unused_groups(
        self, kept: dict[tuple[str, str], Registration]
    ) -> Iterator[tuple[OrphanFinding, list[Operation]]]:
        """Groups that nobody reads, empty and without change for long; only if that is asked for."""
        if self._unused_after is None:
            return
        before = self._now() - self._unused_after
        for (topic, name), registration in kept.items():
            if children_of(self._session, self._tree.members(name, topic)):
                continue
            queues = [self._tree.queue(queue, topic) for queue in queues_of(name, registration)]
            ledgers = [self._tree.ledger(name, topic, number) for number in range(len(queues))]
            read = read_many(self._session, ledgers, self._session.get_async)
            stats = stats_of(self._session, queues, str)
            busy = any(stat.numChildren or stat.mtime / 1000 > before for stat in stats.values())
            if busy or len(stats) < len(queues) or any(stat.mtime / 1000 > before for _, stat in read.values()):
                continue
            operations: list[Operation] = [
                Delete(self._tree.registration(topic, name)),
                *(SetData(path, encode(Ledger()), stat.version) for path, (_, stat) in read.items()),
                *(Delete(path) for path in stats),
                SetData(self._tree.topic(topic), b""),
                *self._below(self._tree.group(name, topic)),
            ]
            reason = f"nobody has used it for {self._unused_after:g} s"
            yield OrphanFinding("subscription", self._tree.registration(topic, name), reason), operations

    def _shelves(self) -> Iterator[tuple[OrphanFinding, list[Operation]]]:
        """The parents of dead letters, empty, of subscriptions that are gone.

        With separate roles they belong to whoever had the name, and nobody else could have it.
        """
        if self._session.rights is None:
            return
        tree = self._tree
        listed = grandchildren_of(self._session, tree.dead)
        pairs = [(name, topic) for name, (topics, _) in listed.items() for topic in topics]
        stats = stats_of(self._session, pairs, lambda pair: tree.dead_queue(*pair))
        empty = [pair for pair, stat in stats.items() if not stat.numChildren]
        known = stats_of(self._session, empty, lambda pair: tree.registration(pair[1], subscription_of(pair[0])))
        paths = [tree.dead_queue(*pair) for pair in empty if pair not in known]
        paths += [tree.dead_of(name) for name, (topics, _) in listed.items() if not topics]
        for path in paths:
            yield OrphanFinding("nothing", path, "has no dead letters, and its subscription is gone"), [Delete(path)]

    def _topics(self, topics: Mapping[str, Stat]) -> Iterator[tuple[OrphanFinding, list[Operation]]]:
        before = self._now() - TOPIC_IDLE
        idle = [topic for topic, stat in topics.items() if not stat.numChildren and stat.mtime / 1000 < before]
        if not idle:
            return
        some = idle[:AT_A_TIME]
        data, roll = self._session.get(self._tree.subscribers)
        left = [pattern for pattern in patterns_in(data) if pattern not in some]
        # The list is written in any case: a topic that is made again begins with epoch 0, as the old one did.
        written = encode(Patterns(tuple(left))) if any(map(is_pattern, some)) else data
        operations: list[Operation] = [Delete(self._tree.topic(topic), topics[topic].version) for topic in some]
        operations.append(SetData(self._tree.subscribers, written, roll.version))
        reason = f"nobody subscribes to {', '.join(map(repr, some[:3]))}{' and others' if len(some) > 3 else ''}"
        yield OrphanFinding("topics", self._tree.subscribers, reason, len(some)), operations
