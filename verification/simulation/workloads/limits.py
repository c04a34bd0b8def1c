"""Full queues: a durable one rejects every publish, a live one is skipped and gets a gap, others are not affected."""

from __future__ import annotations

from itertools import pairwise

import zkms
from verification.simulation import primitives
from verification.simulation.clockwork import World
from verification.simulation.workloads.base import TOPIC
from verification.simulation.workloads.hearing import Heard, Hearing
from verification.simulation.workloads.publishing import MOST, Place

LIMIT = 4
SLOW = 0.8
"""Seconds that the slow ones take for a message, at the most."""


class Limits(Hearing):
    """A slow durable reader and a slow live one, both with a small limit; one that is neither; two publishers."""

    name = "limits"
    without = ("clock",)
    ways = ("one", "many", "stream")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.read: list[Place] = []
        self.done_with: set[Place] = set()
        """Messages that were or may have been acked."""

    def start(self) -> None:
        """Start the processes; the durable subscription, which rejects, is not in every schedule."""
        self._strict = self.chance(0.5)
        if self._strict:
            self.process("read", lambda life: self._read(f"read-{life}"))
        self.process("slow", lambda life: self._listen(f"slow-{life}", SLOW, LIMIT))
        self.process("quick", lambda life: self._listen(f"quick-{life}", 0.0, 100_000))
        self.publisher("pub0")
        self.publisher("pub1")

    def _listen(self, client: str, slow: float, limit: int) -> None:
        self.listen(self.connect(client), client, slow=slow, limit=limit)

    def _read(self, client: str) -> None:
        bus = self.connect(client)
        while True:
            try:
                sub = bus.subscribe(TOPIC, name="d", limit=LIMIT, max_attempts=None)
                break
            except (zkms.ConnectionLost, zkms.SubscriptionInUse):
                primitives.sleep(1.0)
        while True:
            try:
                message = sub.get(timeout=5.0)
            except zkms.ConnectionLost:
                continue
            if message is None:
                continue
            place = message.data["by"], message.data["number"]
            self.read.append(place)
            primitives.sleep(self.world.random.random() * SLOW)
            self.done_with.add(place)
            try:
                message.ack()
            except (zkms.LostOwnership, zkms.ConnectionLost):
                continue

    def seen(self) -> set[Place]:
        """Return the messages that any subscription received."""
        return super().seen() | set(self.read)

    def finished(self) -> bool:
        """Whether all queues are empty, and no message is missing."""
        return self.published and not self.remains.entries() and not self._lost() and not self.waits()

    def _lost(self) -> set[Place]:
        """Return the messages that the durable subscription has missed, as far as it is known."""
        if not self._strict or not self.read:
            return set()
        first = {name: min((n for by, n in self.read if by == name), default=None) for name in self.sent}
        owed = self.together(self.seen()) - self.done_with
        return {(by, n) for by, n in owed if (start := first[by]) is not None and n > start}

    def check(self) -> None:
        """Check also that no queue exceeded its limit, and that a full one has one gap."""
        self.check_heard()
        if ghosts := self.refused() & set(self.read):
            self.problem(f"refused and delivered all the same: {sorted(ghosts)}")
        if lost := self._lost():
            self.problem(f"stored and never read: {sorted(lost)}")
        for queue, most in self.remains.deepest(TOPIC).items():
            # Each publisher may have looked before the other sent: together they may exceed the limit.
            if queue.split("/")[3].startswith(("d", "slow")) and most > LIMIT + len(self.sent) * MOST:
                self.problem(f"{most} messages waited in {queue}, whose limit is {LIMIT}")
        for heard in self.heard:
            if self.had_one_session(heard):
                self._check_gaps(heard)

    def _check_gaps(self, heard: Heard) -> None:
        gaps = [place is None for place, _ in heard.told]
        if heard.client.startswith("quick") and any(gaps):
            self.problem(f"{heard.client} was told of a gap, and is not slow: {heard.told}")
        if any(one and next_ for one, next_ in pairwise(gaps)):
            self.problem(f"{heard.client} was told of two gaps and nothing in between: {heard.told}")
