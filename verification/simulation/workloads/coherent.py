"""The near cache: after invalidate() has returned true, no node reads an older value."""

from __future__ import annotations

from dataclasses import dataclass

import zkms
from verification.simulation import primitives
from verification.simulation.clockwork import World
from verification.simulation.workloads.base import Workload

KEYS = 3
ROUNDS = 12
MAX_STALENESS = 2.0


@dataclass
class Write:
    """One change of a row, and when all nodes were known to have dropped the old value."""

    version: int
    sent: float = float("inf")
    done: float = float("inf")


class Coherent(Workload):
    """Three nodes that read and write rows of a shared table through their caches."""

    name = "cache"
    without = ("clock",)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._rows = dict.fromkeys(range(KEYS), 0)
        self._writes: dict[int, list[Write]] = {key: [] for key in range(KEYS)}
        self._working = 3

    def start(self) -> None:
        """All nodes do the same."""
        for number in range(3):
            self.process(f"node{number}", lambda life, number=number: self._node(f"node{number}-{life}", life))  # type: ignore[misc]
            self.processes[-1].ended.append(self._one_less)

    def _one_less(self) -> None:
        self._working -= 1

    def _node(self, client: str, life: int) -> None:
        bus = self.connect(client)
        while True:
            try:
                cache = zkms.Cache(bus, "rows", max_staleness=MAX_STALENESS)
                break
            except zkms.ConnectionLost:
                primitives.sleep(0.5)
        chance = self.world.random
        for _ in range(ROUNDS):
            primitives.sleep(chance.random())
            key = int(chance.random() * KEYS)
            if chance.random() < 0.3:
                self._write(cache, key)
            else:
                self._read(cache, key, client)
        if life == 1:
            self._one_less()

    def _load(self, key: int) -> int:
        version = self._rows[key]
        primitives.sleep(self.world.random.random() * 0.05)  # a later change may overtake it here
        return version

    def _read(self, cache: zkms.Cache, key: int, client: str) -> None:
        begun = self.world.now
        version = cache.get(key, self._load)
        for write in self._writes[key]:
            if write.version > version and write.done < begun:
                self.problem(f"{client} read version {version} of row {key} at {begun:.3f}, {write} was done")
            if write.version > version and write.sent + MAX_STALENESS < begun:
                self.problem(f"{client} read version {version} of row {key} at {begun:.3f}, too old: {write}")

    def _write(self, cache: zkms.Cache, key: int) -> None:
        self._rows[key] += 1
        write = Write(self._rows[key])
        self._writes[key].append(write)
        try:
            outcome = cache.invalidate(key, wait=3.0)
        except zkms.ConnectionLost:
            return
        if outcome is not None and outcome.sent:
            write.sent = self.world.now
        if outcome:
            write.done = self.world.now

    def finished(self) -> bool:
        """Whether all have done their rounds."""
        return self._working <= 0

    def check(self) -> None:
        """Reads were checked when they were made."""
