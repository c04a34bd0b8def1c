"""A group: each message acked once by whoever has it, those of a key in order, whoever comes and goes."""

from __future__ import annotations

import zkms
from simulation import primitives
from simulation.workloads.base import TOPIC
from simulation.workloads.durable import Durable

PARTITIONS = 3
KEYS = 2


class Group(Durable):
    """Three members, two publishers, keys that each publisher has of its own."""

    name = "group"
    readers = 3

    def key(self, name: str, number: int) -> str | None:
        """A few for each publisher."""
        return f"{name}/{number % KEYS}"

    def _read(self, client: str, number: int) -> None:
        bus = self.connect(client)
        primitives.sleep(number * self.world.random.random() * 3.0)
        while True:
            try:
                sub = bus.subscribe(TOPIC, group="g", partitions=PARTITIONS, max_attempts=None)
                break
            except zkms.ConnectionLost:
                primitives.sleep(1.0)
        self._work(sub, client)

    def check(self) -> None:
        """As for one reader, but in order by key only."""
        done = set(self.acked) | self.unsure
        if lost := self.stored() - done:
            self.problem(f"stored and never acked: {sorted(lost)}")
        if ghosts := self.refused() & done:
            self.problem(f"refused and delivered all the same: {sorted(ghosts)}")
        order: dict[str | None, list[int]] = {}
        for by, number, _ in self.delivered:
            numbers = order.setdefault(self.key(by, number), [])
            if number not in numbers:
                numbers.append(number)
        for key, numbers in order.items():
            if numbers != sorted(numbers):
                self.problem(f"messages of {key} came in the order {numbers}")
        if left := self._left():
            self.problem(f"left in the queues: {left}")
