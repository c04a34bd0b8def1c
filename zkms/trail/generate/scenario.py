"""One shift of a generated trail: everything that its nodes did, as columns.

Five topics: `users` goes to a live subscription on every node, `orders` to two durable ones, `jobs` to a group by key
(some messages are given back and come again, some end as dead letters), `reminders` are delayed, `offers` expire. One
node is killed and its queue purged, one has lost lines of its trail, one has had a full queue, and says so by a gap.
All of that is in order: an audit finds nothing here. Violations are planted afterwards, see planting.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zkms.trail.event import EVENTS
from zkms.trail.generate.cast import (
    DURABLES,
    GROUPS,
    JOBS,
    NODES,
    OFFERS,
    ORDERS,
    PARTITIONS,
    REMINDERS,
    SHIFT,
    USERS,
    Shift,
    spread,
)

CODE = {name: code for code, name in enumerate(EVENTS)}
SHARES = {USERS: (0.5, 2 * NODES + 1), ORDERS: (0.2, 5), JOBS: (0.2, 3), REMINDERS: (0.05, 4), OFFERS: (0.05, 3)}
"""Of all events, and how many of them a frame causes."""
KEYS = 100_000
TTL = 60.0
SESSION_TIMEOUT = 10.0
LOSSY_SECONDS = 0.1
EVERYBODY, NOT_THE_SLOW, NOT_THE_KILLED, THE_DURABLES, FIRST_GROUP = range(5)
"""The lists in `subs`, by code; each group has one."""

INTEGERS = (
    *("node", "event", "topic", "producer", "seq", "n", "sub", "kind", "partition", "epoch", "size", "attempt"),
    *("subs", "reason", "key", "state", "lines", "lost", "zxid", "role", "stride", "priority"),
)
REALS = ("time", "at", "due", "expires")
NONE = -1
LIVE, DURABLE, GROUP = range(3)
REASONS = (
    "the handler raised",
    "given up after 3 attempts",
    "the queue was full",
    "its subscriber is gone",
    "unclean",
    "too many lines waited, or the disk refused them",
    "the queue was removed by somebody else",
    "dropped: more than 100 messages were waiting",
)
STATES = ("connected", "closed")

Columns = dict[str, np.ndarray]


class Scenario:
    """Builds the rows of one shift; `rows()` has them as columns, in no order yet."""

    def __init__(self, shift: Shift, events: int) -> None:
        self.shift = shift
        self.subs = [*shift.nodes, *DURABLES, *GROUPS.values()]
        """Subscriptions by code; the live ones are called as their node."""
        self.producers = [*shift.nodes]
        spared = [[node for k, node in enumerate(shift.nodes) if k != absent] for absent in (shift.slow, shift.killed)]
        self.lists = [shift.nodes, *spared, [*DURABLES], *([name] for name in GROUPS.values())]
        """Producers, and lists of subscriptions, by code."""
        self._rng = shift.rng
        self._chunks: list[Columns] = []
        self._frames(events)
        self._lives()
        self._users()
        self._orders()
        self._jobs()
        self._reminders()
        self._offers()

    def rows(self) -> Columns:
        """All rows."""
        return {name: np.concatenate([chunk[name] for chunk in self._chunks]) for name in self._chunks[0]}

    def add(self, event: str, time: Any, **fields: Any) -> None:
        """Rows of an event at these times."""
        time = np.atleast_1d(np.asarray(time, dtype=np.float64))
        chunk: Columns = {"time": time, "event": np.full(len(time), CODE[event], np.int64)}
        for name in (*INTEGERS, *REALS):
            if name not in chunk:
                given = fields.get(name, NONE if name in INTEGERS else np.nan)
                chunk[name] = np.broadcast_to(np.asarray(given), time.shape).astype(
                    np.int64 if name in INTEGERS else np.float64
                )
        self._chunks.append(chunk)

    # -- what is published ---------------------------------------------------------------------------------------

    def _frames(self, events: int) -> None:
        """Frames of all topics in the order of their transactions, with their producers and numbers."""
        rng, shift = self._rng, self.shift
        counts = [max(4, int(events * share / caused)) for share, caused in SHARES.values()]
        topic = rng.permutation(np.repeat([*SHARES], counts))
        total = len(topic)
        time = np.sort(rng.uniform(shift.begin + 5, shift.begin + SHIFT - 100, total)) + np.arange(total) * 1e-6
        producer = rng.integers(0, NODES, total)
        dead = (producer == shift.killed) & (time > shift.kill_at - 1)
        producer[dead] = shift.leader
        n = np.where(topic == USERS, np.minimum(rng.geometric(0.15, total), 200), 1)
        n = np.where(topic == ORDERS, rng.integers(1, 5, total), n)
        order = np.argsort(producer, kind="stable")
        ends = np.cumsum(n[order])
        first = np.searchsorted(producer[order], np.arange(NODES))
        base = np.where(first > 0, ends[np.minimum(first, total) - 1], 0)
        seq = np.empty(total, np.int64)
        seq[order] = ends - n[order] + 1 - base[producer[order]]
        self._topic, self._time, self._producer, self._n, self._seq = topic, time, producer, n, seq
        self._at = time + shift.skew[producer]

    def _of(self, topic: int) -> dict[str, np.ndarray]:
        chosen = self._topic == topic
        names = {"time": self._time, "producer": self._producer, "n": self._n, "seq": self._seq, "at": self._at}
        return {name: values[chosen] for name, values in names.items()}

    def _publish(self, topic: int, frames: dict[str, np.ndarray], **fields: Any) -> dict[str, Any]:
        """The `published` rows, or `delayed` ones; returns what rows about the same messages have in common."""
        about = {"topic": topic, "producer": frames["producer"], "seq": frames["seq"], "n": frames["n"]}
        took = self._rng.exponential(0.002, len(frames["time"])) + 0.001
        event = "delayed" if topic == REMINDERS else "published"
        self.add(
            event,
            frames["time"] + took,
            node=frames["producer"],
            at=frames["at"],
            size=frames["n"] * 100,
            zxid=0,
            **about,
            **fields,
        )
        return about

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _lives(self) -> None:
        shift, nodes = self.shift, np.arange(NODES)
        begin, end = shift.begin, shift.begin + SHIFT - 1
        alive = nodes[nodes != shift.killed]
        epoch = shift.epoch
        self.add("opened", begin + nodes * 1e-3, node=nodes, lost=0)
        self.add("session", np.full(NODES, begin + 0.1), node=nodes, state=0)
        self.add("subscribed", np.full(NODES, begin + 0.2), node=nodes, sub=nodes, topic=USERS, kind=LIVE, zxid=0)
        for name, owner in shift.durable_owner.items():
            sub = self.subs.index(name)
            for step in range(2 if shift.number == 0 else 1):
                number = epoch - 1 + step if shift.number == 0 else epoch
                taker = (owner + 1) % NODES if shift.number == 0 and step == 0 else owner
                when = begin + 0.3 + step * 0.1
                self.add("subscribed", when, node=taker, sub=sub, topic=ORDERS, kind=DURABLE, epoch=number, zxid=0)
        for topic, name in GROUPS.items():
            sub = self.subs.index(name)
            owners = shift.owner[name]
            common = {"sub": sub, "topic": topic, "kind": GROUP, "partition": np.arange(PARTITIONS), "zxid": 0}
            if shift.number == 0:
                former = (owners + 1) % NODES
                self.add("subscribed", np.full(PARTITIONS, begin + 0.3), node=former, epoch=epoch - 1, **common)
            self.add("subscribed", np.full(PARTITIONS, begin + 0.4), node=owners, epoch=epoch, **common)
        self.add("unsubscribed", np.full(NODES - 1, end), node=alive, sub=alive, topic=USERS, kind=LIVE)
        self.add("session", np.full(NODES - 1, end + 0.1), node=alive, state=1)
        self.add("closed", end + 0.2 + alive * 1e-3, node=alive, lines=0, lost=0)
        self.add("lost", shift.lossy_at + LOSSY_SECONDS, node=shift.lossy, reason=5, at=shift.lossy_at, n=0)
        self.add("closed", shift.kill_at, node=shift.killed, lines=0, lost=0, n=0, reason=4)

    # -- topics --------------------------------------------------------------------------------------------------

    def _users(self) -> None:
        """Each frame to every node, in one order; the killed one stops, the slow one's queue was full for a while."""
        rng, shift = self._rng, self.shift
        frames = self._of(USERS)
        time = frames["time"]
        full = (time >= shift.full_from) & (time < shift.full_until)
        gone = time >= shift.kill_at + SESSION_TIMEOUT
        about = self._publish(
            USERS,
            frames,
            subs=np.where(full, NOT_THE_SLOW, np.where(gone, NOT_THE_KILLED, EVERYBODY)),
            key=np.arange(len(time)),
        )
        latency = rng.exponential(0.004, (len(time), NODES)) + 0.001
        latency[:, shift.slow] += 0.4 * (1 + np.sin(time / 7))
        arrived = np.maximum.accumulate(time[:, None] + latency, axis=0) + np.arange(len(time))[:, None] * 1e-6
        done = arrived + rng.exponential(0.0005, arrived.shape) + 1e-6
        for node in range(NODES):
            there = np.ones(len(time), bool)
            if node == shift.slow:
                there &= ~full
            if node == shift.killed:
                there &= arrived[:, node] < shift.kill_at
                stored = (time < shift.kill_at + SESSION_TIMEOUT) & ~there
                purged = int(frames["n"][stored].sum())
                when = shift.kill_at + SESSION_TIMEOUT + 35.0
                self.add("purged", when, node=shift.leader, sub=node, topic=USERS, n=purged, reason=3)
            mine = {name: values[there] if np.ndim(values) else values for name, values in about.items()}
            mine |= {"node": node, "sub": node, "kind": LIVE, "role": 1}
            self.add("delivered", arrived[there, node], at=frames["at"][there], size=frames["n"][there] * 100, **mine)
            acked = {**mine, "role": NONE}
            self.add("acked", done[there, node], **acked)
        late = arrived[time < shift.full_until, shift.slow]
        when = max(shift.full_until, float(late.max(initial=0.0))) + 5e-7
        self.add("gap", when, node=shift.slow, sub=shift.slow, topic=USERS, kind=LIVE, reason=2)

    def _orders(self) -> None:
        rng, shift = self._rng, self.shift
        frames = self._of(ORDERS)
        time = frames["time"]
        about = self._publish(ORDERS, frames, subs=THE_DURABLES)
        for name, owner in shift.durable_owner.items():
            arrived = np.maximum.accumulate(time + rng.exponential(0.004, len(time)) + 0.001)
            arrived += np.arange(len(time)) * 1e-6
            mine = {**about, "node": owner, "sub": self.subs.index(name), "kind": DURABLE, "epoch": shift.epoch}
            self.add("delivered", arrived, at=frames["at"], size=frames["n"] * 100, attempt=1, role=2, **mine)
            self.add("acked", arrived + rng.exponential(0.002, len(time)) + 1e-6, zxid=0, **mine)

    def _member(self, topic: int, about: dict[str, Any], key: np.ndarray) -> dict[str, Any]:
        """Which member of the topic's group gets each message."""
        name = GROUPS[topic]
        partition = key % PARTITIONS
        return {
            **about,
            "node": self.shift.owner[name][partition],
            "sub": self.subs.index(name),
            "kind": GROUP,
            "partition": partition,
            "epoch": self.shift.epoch,
        }

    def _jobs(self) -> None:
        """By key, some keys much hotter than others; one in a hundred comes again, one in a thousand is given up."""
        rng = self._rng
        frames = self._of(JOBS)
        time = frames["time"]
        key = np.minimum(rng.zipf(1.3, len(time)), KEYS)
        about = self._publish(JOBS, frames, subs=FIRST_GROUP, key=key)
        mine = self._member(JOBS, about, key)
        arrived = time + rng.exponential(0.005, len(time)) + 0.001
        for partition in range(PARTITIONS):
            here = mine["partition"] == partition
            arrived[here] = np.maximum.accumulate(arrived[here]) + np.arange(int(here.sum())) * 1e-6
        done = arrived + rng.exponential(0.002, len(time)) + 1e-6
        luck = rng.uniform(size=len(time))
        dead, again = luck < 0.001, (luck >= 0.001) & (luck < 0.011)
        role = np.where(dead | again, NONE, 3)
        size = frames["n"] * 100
        self.add("delivered", arrived, at=frames["at"], size=size, attempt=1, role=role, key=key, **mine)
        for attempt in (1, 2, 3):
            failed = (dead | again) if attempt == 1 else dead
            some = {name: values[failed] if np.ndim(values) else values for name, values in mine.items()}
            when = done[failed] + (attempt - 1) * 0.5
            self.add("nacked", when, attempt=attempt, due=when + 0.4, reason=0, **some)
            if attempt < 3:
                self.add("redelivered", when + 0.45, attempt=attempt + 1, at=frames["at"][failed], **some)
            else:
                self.add("dead", when + 1e-3, reason=1, **some)
        when = np.where(again, done + 0.5, done)
        fine = {name: values[~dead] if np.ndim(values) else values for name, values in mine.items()}
        self.add("acked", when[~dead], zxid=0, key=key[~dead], **fine)

    def _reminders(self) -> None:
        """Stored to come later; the leader moves them into the queue when they are due, by its clock."""
        rng, shift = self._rng, self.shift
        frames = self._of(REMINDERS)
        time = frames["time"]
        due = time + rng.uniform(20, 40, len(time))
        key = np.arange(len(time)) + KEYS + 1
        shown = due + shift.skew[shift.leader]
        about = self._publish(REMINDERS, frames, due=shown, key=key)
        mine = self._member(REMINDERS, about, key)
        moved = due + rng.uniform(0, 0.02, len(time))
        self.add(
            "due", moved, node=shift.leader, due=shown, subs=FIRST_GROUP + REMINDERS - JOBS, zxid=0, role=4, **about
        )
        arrived = moved + rng.exponential(0.004, len(time)) + 0.001
        self.add("delivered", arrived, at=frames["at"], size=100, attempt=1, role=4, **mine)
        self.add("acked", arrived + rng.exponential(0.002, len(time)) + 1e-6, zxid=0, role=4, **mine)

    def _offers(self) -> None:
        """Worthless after a minute: one in ten is not taken in time, and dropped."""
        rng, shift = self._rng, self.shift
        frames = self._of(OFFERS)
        time = frames["time"]
        key = np.arange(len(time)) + 10 * KEYS
        about = self._publish(OFFERS, frames, subs=FIRST_GROUP + OFFERS - JOBS, expires=frames["at"] + TTL, key=key)
        mine = self._member(OFFERS, about, key)
        gone = rng.uniform(size=len(time)) < 0.1
        taken = {name: values[~gone] if np.ndim(values) else values for name, values in mine.items()}
        arrived = time[~gone] + rng.exponential(0.5, int((~gone).sum())) + 0.001
        self.add("delivered", arrived, at=frames["at"][~gone], size=100, attempt=1, role=5, **taken)
        self.add("acked", arrived + rng.exponential(0.002, len(arrived)) + 1e-6, zxid=0, role=5, **taken)
        left = {name: values[gone] if np.ndim(values) else values for name, values in about.items()}
        self.add(
            "expired",
            time[gone] + TTL + 1.5 + rng.uniform(0, 2, int(gone.sum())),
            node=shift.leader,
            sub=self.subs.index("mailers"),
            expires=frames["at"][gone] + TTL,
            **left,
        )


def keys_of_users(n: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The hashes of the keys in all `users` frames, one after another."""
    return spread(np.minimum(rng.zipf(1.2, int(n.sum())), KEYS) + 20 * KEYS)
