"""A durable subscription: each message acked exactly once, in order, whoever reads it at the time."""

from __future__ import annotations

import zkms
from simulation import primitives
from simulation.workloads.base import TOPIC, Workload


class Durable(Workload):
    """One reader, one that takes its place now and then, two publishers."""

    name = "durable"
    without = ("clock",)
    readers = 2

    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self.delivered: list[tuple[str, int, str]] = []
        self.acked: dict[tuple[str, int], str] = {}
        self.unsure: set[tuple[str, int]] = set()
        """Whose ack had no answer, or not yet."""

    def start(self) -> None:
        """Readers and publishers."""
        for number in range(self.readers):
            self.process(f"read{number}", lambda life, number=number: self._read(f"read{number}-{life}", number))  # type: ignore[misc]
        self.publisher("pub0")
        self.publisher("pub1")

    def _read(self, client: str, number: int) -> None:
        bus = self.connect(client)
        if number:
            primitives.sleep(self.world.random.random() * 10.0)
        while True:
            try:
                sub = bus.subscribe(TOPIC, name="d", takeover=bool(number) and not self.healed)
            except (zkms.ConnectionLost, zkms.SubscriptionInUse):
                primitives.sleep(1.0)
                continue
            self._work(sub, client)

    def _work(self, sub: zkms.Consumer, client: str) -> None:
        """Until the subscription is somebody else's."""
        while True:
            try:
                message = sub.get(timeout=5.0)
            except zkms.LostOwnership:
                return
            except zkms.ConnectionLost:
                continue
            if message is None:
                if sub.closed:
                    return
                continue
            place = (message.data["by"], message.data["number"])
            again = self.acked.get(place)
            self.delivered.append((*place, client))
            if self._ack(message, place, client) and again is not None:
                # One that was stopped may go on with what it had in hand; but it must be told that it is replaced.
                self.problem(f"{place} was acked by {again}, and then given to {client}, which could ack it too")

    def _ack(self, message: zkms.Message, place: tuple[str, int], client: str) -> bool:
        """Whether it was, or may have been, acked."""
        unsure = place not in self.unsure
        self.unsure.add(place)  # if we are killed now, nobody will ever know
        try:
            message.ack()
        except zkms.LostOwnership as error:
            if unsure and not error.outcome_unknown:
                self.unsure.discard(place)
            return False
        except zkms.ConnectionLost:
            return False
        if place in self.acked:
            self.problem(f"{place} was acked by {self.acked[place]} and by {client}")
        self.acked[place] = client
        return True

    def finished(self) -> bool:
        """Whether all that is stored is acked, and the queue is empty."""
        return self.published and self.stored() <= set(self.acked) | self.unsure and not self._left()

    def _left(self) -> list[str]:
        znodes = self.world.ensemble.leader.tree.znodes
        return [
            name
            for path, znode in znodes.items()
            if path.startswith("/zkms/messages/") and path.count("/") == 4
            for name in znode.children
        ]

    def check(self) -> None:
        """Lost, out of order, or refused and delivered all the same."""
        done = set(self.acked) | self.unsure
        if lost := self.stored() - done:
            self.problem(f"stored and never acked: {sorted(lost)}")
        if ghosts := self.refused() & done:
            self.problem(f"refused and delivered all the same: {sorted(ghosts)}")
        for name in self.sent:
            first: list[int] = []
            for by, number, _ in self.delivered:
                if by == name and number not in first:
                    first.append(number)
            if first != sorted(first):
                self.problem(f"{name}'s messages came in the order {first}")
        if left := self._left():
            self.problem(f"left in the queue: {left}")
