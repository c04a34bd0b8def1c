"""A group: each message is acked once, those of a key in order, while members join and leave."""

from __future__ import annotations

import zkms
from verification.simulation import primitives
from verification.simulation.workloads.base import TOPIC
from verification.simulation.workloads.durable import Durable
from verification.simulation.workloads.publishing import Place

PARTITIONS = 3
KEYS = 2


class Group(Durable):
    """Three members, two publishers, keys that each publisher has of its own."""

    name = "group"
    readers = 3

    def key(self, name: str, number: int) -> str | None:
        """A few for each publisher."""
        return f"{name}/{number % KEYS}"

    def subscribe(self, bus: zkms.Bus, number: int) -> zkms.Consumer:
        """As a member."""
        primitives.sleep(number * self.world.random.random() * 3.0)
        return bus.subscribe(TOPIC, group="g", partitions=PARTITIONS, max_attempts=None)

    def _line(self, place: Place) -> tuple[str | None, int]:
        """A key's messages of one priority."""
        name, number = place
        return self.key(name, number), self.sent[name][number].priority
