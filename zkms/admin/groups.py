"""Reads durable subscriptions and groups: the owners of their partitions, their members, and their lag.

This takes a few rounds of pipelined requests for any number of groups. Queues are listed within a budget (see lag.py);
entries are not read. The results are not one consistent snapshot: members join and leave meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from zkms.admin.dead_letters import DeadLetters
from zkms.admin.discovery import QueueInfo
from zkms.admin.lag import BUDGET, Backlog, QueueCounts, QueueKey, flow, measure
from zkms.tree.paths import Tree, queue_of, queues_of, subscription_of
from zkms.tree.records import GroupPlan, Ledger, MemberState, Record, Registration, decode_or_none
from zkms.zookeeper.recipes import grandchildren_of, read_many, stats_of
from zkms.zookeeper.session import Session

R = TypeVar("R", bound=Record)
T = TypeVar("T")
Group = tuple[str, str]
"""Its name and its topic."""


class MemberInfo(msgspec.Struct, frozen=True):
    """A process that reads a durable subscription, or is a member of a group."""

    client: str
    host: str
    pid: int
    partitions: list[int]
    """The partitions that it owns."""
    reserved: int
    """Messages in flight, as it last reported: up to a second ago."""
    handled: int
    """Messages acked, of the partitions that it owns."""
    stuck: bool
    """Whether its handler has not returned in time."""


class PartitionInfo(msgspec.Struct, frozen=True):
    """One partition of a durable subscription or a group; None means unknown, because the queue is too long."""

    partition: int
    owner: str
    """The client that reads it; empty if there is none."""
    epoch: int
    """How often its owner has changed."""
    entries: int
    messages: int | None
    delayed: int | None
    ready: int | None
    reserved: int
    age: float | None
    """Age of the oldest entry in seconds; None if there is none."""
    stored: int
    """Entries ever stored in it."""
    removed: int


class GroupInfo(msgspec.Struct, frozen=True):
    """A durable subscription or a group."""

    topic: str
    name: str
    kind: str
    """durable or group; "garbage" if another program has overwritten its registration, empty if it has none."""
    state: str
    """active; "no members": no process reads it; rebalancing: partitions change their owners; stuck: a member's handler
    has not returned in time; "gone": it was unsubscribed, and some znodes are left."""
    partitions: list[PartitionInfo]
    members: list[MemberInfo]
    entries: int
    messages: int | None
    """The lag: messages in all partitions, in any state."""
    delayed: int | None
    """Messages that failed and wait for another attempt."""
    ready: int | None
    reserved: int
    """Messages in flight."""
    dead: int
    """Its dead letters."""
    age: float | None
    """Age of the oldest entry in seconds."""


class Groups:
    """Reads durable subscriptions and groups. Thread-safe."""

    def __init__(self, session: Session, tree: Tree) -> None:
        self._session = session
        self._tree = tree
        self._dead_letters = DeadLetters(session, tree)

    def look(self, topic: str | None = None, name: str | None = None, *, budget: int = BUDGET) -> list[GroupInfo]:
        """Return all of them, or those of one topic or name."""
        groups = self._find(topic, name)
        registrations = self._registrations(groups)
        plans = self._plans(groups)
        ledgers = self._ledgers((group, self._partitions(registrations.get(group))) for group in groups)
        every = {queue: ledger for each in ledgers.values() for queue, ledger in each.items()}
        queues = stats_of(self._session, every, lambda queue: self._tree.queue(*queue))
        backlogs = measure(self._session, self._tree, queues, every, budget)
        members = self._members(groups)
        dead = self._dead_letters.counts()
        found = []
        for group in groups:
            parts = [
                _partition(
                    number,
                    ledger,
                    backlogs.get(queue, Backlog()),
                    flow(queues[queue]) if queue in queues else QueueCounts(0, 0),
                    members[group],
                )
                for number, (queue, ledger) in enumerate(ledgers[group].items())
            ]
            registration = registrations.get(group)
            kind = "garbage" if isinstance(registration, str) else "" if registration is None else registration.kind
            found.append(_group(group, kind, parts, members[group], plans.get(group), dead.get(group, 0)))
        return found

    def entries(self, topic: str, name: str) -> int:
        """Return the number of entries in all partitions of a durable subscription or a group, without listing them."""
        registration = self._registrations([(name, topic)]).get((name, topic))
        names = queues_of(name, registration) if isinstance(registration, Registration) else []
        stats = stats_of(self._session, names, lambda queue: self._tree.queue(queue, topic))
        return sum(stat.numChildren for stat in stats.values())

    def count(self, queues: list[QueueInfo], *, budget: int = BUDGET) -> list[QueueInfo]:
        """Return the same queues with their messages by state, dead letters, and the age of the oldest entry."""
        kept = {(subscription_of(q.subscription), q.topic) for q in queues if q.kind in ("durable", "group")}
        every = {(q.subscription, q.topic): q for q in queues}
        owned = [key for key in every if (subscription_of(key[0]), key[1]) in kept]
        ledgers = self._read(owned, lambda key: self._ledger_path(*key), Ledger)
        members = self._members(kept)
        there = stats_of(self._session, every, lambda key: self._tree.queue(*key))
        backlogs = measure(self._session, self._tree, there, ledgers, budget)
        dead = self._dead_letters.counts()
        found = []
        for key, queue in every.items():
            subscription = subscription_of(key[0])
            in_flight = _in_flight(queue.partition or 0, members.get((subscription, key[1]), {}))
            backlog = backlogs.get(key, Backlog())
            found.append(
                msgspec.structs.replace(
                    queue,
                    entries=backlog.entries,
                    messages=backlog.messages,
                    delayed=backlog.delayed,
                    ready=_ready(backlog, in_flight),
                    reserved=in_flight,
                    dead=dead.get((subscription, key[1]), 0),
                    age=backlog.age,
                )
            )
        return found

    # -- reading -------------------------------------------------------------------------------------------------

    def _find(self, topic: str | None, name: str | None) -> list[Group]:
        listed = grandchildren_of(self._session, self._tree.groups, lambda each: name is None or each == name)
        pairs = [(each, found) for each, (topics, _) in listed.items() for found in topics]
        return sorted((p for p in pairs if topic is None or p[1] == topic), key=lambda p: (p[1], p[0]))

    def _registrations(self, groups: Iterable[Group]) -> dict[Group, Registration | str]:
        """Return the registration of each group that has one; "garbage" if another program wrote it."""
        read = read_many(self._session, groups, lambda g: self._session.get_async(self._tree.registration(g[1], g[0])))
        found: dict[Group, Registration | str] = {}
        for group, (data, _) in read.items():
            found[group] = decode_or_none(data, Registration) or "garbage"
        return found

    def _partitions(self, registration: Registration | str | None) -> int | None:
        if isinstance(registration, Registration) and registration.kind == "group":
            return registration.partitions
        return None

    def _plans(self, groups: Iterable[Group]) -> dict[Group, GroupPlan]:
        return self._read(groups, lambda group: self._tree.group(*group), GroupPlan)

    def _ledgers(self, groups: Iterable[tuple[Group, int | None]]) -> dict[Group, dict[QueueKey, Ledger]]:
        """Return the ledgers by queue, in the order of the partitions; a missing one counts as empty."""
        found: dict[Group, dict[QueueKey, Ledger]] = {}
        for (name, topic), count in groups:
            names = [name] if count is None else [queue_of(name, number) for number in range(count)]
            found[name, topic] = {(queue, topic): Ledger() for queue in names}
        read = self._read([key for each in found.values() for key in each], lambda key: self._ledger_path(*key), Ledger)
        return {group: {key: read.get(key, empty) for key, empty in each.items()} for group, each in found.items()}

    def _ledger_path(self, queue: str, topic: str) -> str:
        name = subscription_of(queue)
        number = queue.removeprefix(name)[1:]
        return self._tree.ledger(name, topic, int(number) if number.isdecimal() else 0)

    def _members(self, groups: Iterable[Group]) -> dict[Group, dict[str, MemberState]]:
        wanted = list(groups)
        listed = read_many(
            self._session, wanted, lambda group: self._session.children_async(self._tree.members(*group))
        )
        every = [(*group, client) for group, (clients, _) in listed.items() for client in sorted(clients)]
        read = read_many(self._session, every, lambda each: self._session.get_async(self._tree.member(*each)))
        found: dict[Group, dict[str, MemberState]] = {group: {} for group in wanted}
        for (name, topic, client), (data, _) in read.items():
            found[name, topic][client] = decode_or_none(data, MemberState) or MemberState(host="?")
        return found

    def _read(self, things: Iterable[T], path: Callable[[T], str], kind: type[R]) -> dict[T, R]:
        read = read_many(self._session, things, lambda thing: self._session.get_async(path(thing)))
        decoded = {thing: decode_or_none(data, kind) for thing, (data, _) in read.items()}
        return {thing: record for thing, record in decoded.items() if record is not None}


def _partition(
    number: int, ledger: Ledger, backlog: Backlog, past: QueueCounts, members: dict[str, MemberState]
) -> PartitionInfo:
    in_flight = _in_flight(number, members)
    return PartitionInfo(
        partition=number,
        owner=ledger.owner,
        epoch=ledger.epoch,
        entries=backlog.entries,
        messages=backlog.messages,
        delayed=backlog.delayed,
        ready=_ready(backlog, in_flight),
        reserved=in_flight,
        age=backlog.age,
        stored=past.stored,
        removed=past.removed,
    )


def _in_flight(number: int, members: dict[str, MemberState]) -> int:
    return sum(member.hands.get(number, 0) for member in members.values())


def _ready(backlog: Backlog, in_flight: int) -> int | None:
    """Return the messages that can be delivered; never below 0, although members report with a delay."""
    if backlog.messages is None:
        return None
    return max(0, backlog.messages - (backlog.delayed or 0) - in_flight)


def _group(
    group: Group,
    kind: str,
    parts: list[PartitionInfo],
    members: dict[str, MemberState],
    plan: GroupPlan | None,
    dead: int,
) -> GroupInfo:
    name, topic = group
    ages = [part.age for part in parts if part.age is not None]
    return GroupInfo(
        topic=topic,
        name=name,
        kind=kind,
        state=_state(kind, parts, members, plan or GroupPlan()),
        partitions=parts,
        members=[
            MemberInfo(
                client,
                state.host,
                state.pid,
                [part.partition for part in parts if part.owner == client],
                state.reserved,
                state.handled,
                state.stuck,
            )
            for client, state in members.items()
        ],
        entries=sum(part.entries for part in parts),
        messages=_total(part.messages for part in parts),
        delayed=_total(part.delayed for part in parts),
        ready=_total(part.ready for part in parts),
        reserved=sum(part.reserved for part in parts),
        dead=dead,
        age=max(ages, default=None),
    )


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None if any number is unknown."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _state(kind: str, parts: list[PartitionInfo], members: dict[str, MemberState], plan: GroupPlan) -> str:
    if kind not in ("durable", "group"):
        return kind or "gone"
    if not members:
        return "no members"
    if any(member.stuck for member in members.values()):
        return "stuck"
    moving = any(plan.lanes.get(part.partition, part.owner) != part.owner for part in parts)
    return "rebalancing" if moving or any(part.owner not in members for part in parts) else "active"
