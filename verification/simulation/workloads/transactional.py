"""Consume and publish in one transaction: each input message leads to exactly one output message."""

from __future__ import annotations

import zkms
from verification.simulation import primitives
from verification.simulation.clockwork import World
from verification.simulation.workloads.base import TOPIC, Workload
from verification.simulation.workloads.publishing import Place

OUT = "out"
KEYS = 2
MOST = 3


class Transactional(Workload):
    """Two publishers, a group of two workers that publish what they receive, and a reader of the output."""

    name = "transaction"
    without = ("clock",)
    ways = ("one", "many", "stream")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.out: dict[Place, list[str]] = {}
        """By input message: the ids of the output messages, in the order of arrival."""

    def start(self) -> None:
        """Start the workers when the output has a subscriber."""
        self.process("sink", lambda life: self._collect(f"sink-{life}"))
        for number in range(2):
            self.process(f"work{number}", lambda life, number=number: self._work(f"work{number}-{life}"))  # type: ignore[misc]
        self.publisher("pub0")
        self.publisher("pub1")

    def key(self, name: str, number: int) -> str | None:
        """A few for each publisher."""
        return f"{name}/{number % KEYS}"

    # -- output --------------------------------------------------------------------------------------------------

    def _collect(self, client: str) -> None:
        bus = self.connect(client)
        while True:
            try:
                sub = bus.subscribe(OUT, name="sink", max_attempts=None)
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
            ids = self.out.setdefault((message.data["by"], message.data["number"]), [])
            if message.id not in ids:
                ids.append(message.id)
            try:
                message.ack()
            except (zkms.LostOwnership, zkms.ConnectionLost):
                continue

    # -- workers -------------------------------------------------------------------------------------------------

    def _work(self, client: str) -> None:
        bus = self.connect(client)
        while True:
            try:
                sub = bus.subscribe(TOPIC, group="g", partitions=2, max_attempts=None, ttr=10.0)
                break
            except zkms.ConnectionLost:
                primitives.sleep(1.0)
        while True:
            try:
                messages = sub.fetch(self.number(MOST), timeout=5.0)
            except zkms.ConnectionLost:
                continue
            if messages:
                self._pass_on(bus, messages)

    def _pass_on(self, bus: zkms.Bus, messages: list[zkms.Message]) -> None:
        """Ack and publish all of them together; try again as long as we own the partition."""
        timeout = 0.5 if self.chance(0.3) else None
        while True:
            try:
                with bus.transaction(timeout=timeout) as transaction:
                    for message in messages:
                        transaction.ack(message)
                        data = {"by": message.data["by"], "number": message.data["number"]}
                        transaction.publish(OUT, data, key=message.key)
                return
            except zkms.ConnectionLost:  # if it was stored, the next try is refused
                primitives.sleep(0.2)
            except (zkms.LostOwnership, zkms.AlreadyAcked, zkms.NoSubscribers):
                break
        for message in messages:
            try:
                message.nak(delay=0.5)
            except (zkms.LostOwnership, zkms.AlreadyAcked, zkms.ConnectionLost):
                continue  # the new owner gets it, or it was published already

    # -- judgement -----------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """Whether all output has arrived, and nothing is left."""
        return self.published and not self._missing() and not self.remains.entries()

    def _missing(self) -> set[Place]:
        return self.together(set(self.out)) - set(self.out)

    def check(self) -> None:
        """Check that there is one output for each input, in the order of each key."""
        if missing := self._missing():
            self.problem(f"went in, and never came out: {sorted(missing)}")
        if ghosts := self.refused() & set(self.out):
            self.problem(f"refused, and came out: {sorted(ghosts)}")
        for place, ids in self.out.items():
            if len(ids) > 1:
                self.problem(f"{place} came out {len(ids)} times: {ids}")
        order: dict[str | None, list[int]] = {}
        for name, number in self.out:
            order.setdefault(self.key(name, number), []).append(number)
        for key, numbers in order.items():
            if numbers != sorted(numbers):
                self.problem(f"what came out of {key} came in the order {numbers}")
        if left := [*self.remains.entries(), *self.remains.bodies(), *self.remains.letters()]:
            self.problem(f"left behind: {left}")
