"""Full queues: one drops its oldest entries and announces a gap, one is unsubscribed while it is full."""

from __future__ import annotations

import contextlib

import zkms
from verification.simulation import primitives
from verification.simulation.clockwork import World
from verification.simulation.workloads.base import TOPIC, Workload
from verification.simulation.workloads.publishing import MOST, Place, Sent
from verification.simulation.workloads.remains import ROOT
from zkms.tree.records import Ledger, decode

LIMIT = 4
SLOW = 0.8
"""Seconds that the reader takes for a message, at the most."""
NEWS = 5.0
"""Seconds after which every publisher knows that a subscription was removed, also on a server that lags."""
KEPT, GIVEN_UP = "kept", "left"


class Dropping(Workload):
    """A slow reader whose queue drops its oldest; a full queue that nobody reads, until it is unsubscribed."""

    name = "dropping"
    without = ("clock",)
    ways = ("one", "many", "stream")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.since = float("inf")
        """When the reader had subscribed."""
        self.told: list[Place | None] = []
        """What all its processes received: messages, or None for a gap."""
        self.gone = float("inf")
        """When the other one had been unsubscribed."""

    def start(self) -> None:
        """Start the processes; the subscription that is removed is not in every schedule."""
        self.process("read", lambda life: self._read(f"read-{life}"))
        if self.chance(0.7):
            self.process("leave", lambda life: self._leave(f"leave-{life}"))
        else:
            self.gone = self.world.now
        self.publisher("pub0")
        self.publisher("pub1")

    def _read(self, client: str) -> None:
        bus = self.connect(client)
        while True:
            try:
                sub = bus.subscribe(
                    TOPIC,
                    name=KEPT,
                    limit=LIMIT,
                    overflow="drop-oldest",
                    max_attempts=None,
                    on_gap=lambda _gap: self.told.append(None),
                )
                break
            except (zkms.ConnectionLost, zkms.SubscriptionInUse):
                primitives.sleep(1.0)
        self.since = min(self.since, self.world.now)
        while True:
            try:
                messages = sub.fetch(self.number(3), timeout=5.0)
            except (zkms.LostOwnership, zkms.ConnectionLost):
                continue
            for message in messages:
                self.told.append((message.data["by"], message.data["number"]))
                primitives.sleep(self.world.random.random() * SLOW)
                with contextlib.suppress(zkms.LostOwnership, zkms.ConnectionLost):  # the next one is to be acked too
                    message.ack()

    def _leave(self, client: str) -> None:
        """Subscribe, read nothing, and unsubscribe; again, until that has certainly succeeded."""
        bus = self.connect(client)
        while self.gone == float("inf"):
            try:
                sub = bus.subscribe(TOPIC, name=GIVEN_UP, limit=LIMIT)
                primitives.sleep(self.world.random.random() * 12.0)
                sub.unsubscribe()
            except (zkms.ConnectionLost, zkms.SubscriptionInUse, zkms.NotSubscribed):
                primitives.sleep(1.0)
            else:
                self.gone = self.world.now

    def turned_away(self, error: zkms.ZkmsError, entries: list[Sent]) -> None:
        """Check that only the queue that rejects has refused, and only while it exists."""
        if not isinstance(error, zkms.QueueFull):
            return
        if error.subscription != GIVEN_UP:
            self.problem(f"{[entry.number for entry in entries]} was refused, and should have made room: {error}")
        elif min(entry.begun for entry in entries) > self.gone + NEWS:
            self.problem(f"{[entry.number for entry in entries]} was refused by what is no more: {error}")

    # -- judgement -----------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """Whether all queues are empty, and everything was delivered or announced as a gap."""
        over = self.published and self.gone <= self.world.now
        return over and not self.remains.entries() and not self.remains.bodies() and not self._silent()

    def _places(self) -> set[Place]:
        return {place for place in self.told if place is not None}

    def _silent(self) -> list[Place]:
        """Return the messages that were stored for the reader and not delivered, without a gap."""
        expected = {
            (name, sent.number)
            for name, all_ in self.sent.items()
            for sent in all_
            if (name, sent.number) in self.together(self._places()) and sent.begun > self.since
        }
        return sorted(place for place in expected - self._places() if not self._has_gap(place))

    def _has_gap(self, missing: Place) -> bool:
        name, number = missing
        older = {(name, each) for each in range(number)}
        before = [index for index, place in enumerate(self.told) if place in older]
        return None in self.told[max(before, default=-1) + 1 :]

    def check(self) -> None:
        """Check gaps, order and limits, and that nothing of the removed subscription is left."""
        if silent := self._silent():
            self.problem(f"never told of {silent}, nor of a gap: {self.told}")
        if ghosts := self.refused() & self._places():
            self.problem(f"refused and delivered all the same: {sorted(ghosts)}")
        for name in self.sent:
            numbers = [place[1] for place in dict.fromkeys(self.told) if place is not None and place[0] == name]
            if numbers != sorted(numbers):
                self.problem(f"{name}'s came in the order {numbers}")
        for queue, most in self.remains.deepest(TOPIC).items():
            if most > LIMIT + len(self.sent) * MOST:
                self.problem(f"{most} messages waited in {queue}, whose limit is {LIMIT}")
        if left := [*self.remains.entries(), *self.remains.bodies(), *self.remains.letters(), *self._traces()]:
            self.problem(f"left behind: {left}")

    def _traces(self) -> list[str]:
        """Return what is left of the removed subscription, and of removed entries in the reader's ledger."""
        znodes = self.world.ensemble.leader.tree.znodes
        traces = [path for path in znodes if GIVEN_UP in path.split("/")]
        for path, znode in znodes.items():
            if path.startswith(f"{ROOT}/groups/{KEPT}/") and "/lanes/" in path and decode(znode.data, Ledger).parts:
                traces.append(f"{path}: {znode.data.decode()}")
        return traces
