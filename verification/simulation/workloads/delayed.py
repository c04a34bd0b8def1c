"""Delayed messages: none early, none lost, none twice, whoever leads the cleaners."""

from __future__ import annotations

import zkms
from verification.simulation.workloads.base import TOPIC
from verification.simulation.workloads.durable import Durable
from verification.simulation.workloads.publishing import Place, Publishing


class Delayed(Durable):
    """A durable reader and two publishers; all of them are candidates for the cleaner."""

    name = "delayed"
    ways = ("one",)
    messages = 6
    readers = 1
    at_once = False
    naks = 0.0
    every = 2.0

    def publish(self, publishing: Publishing, numbers: range) -> None:
        """With a delay of a few seconds; many are due at the same moment."""
        for number in numbers:
            moment = int(self.world.now / self.every + 1 + self.world.random.random() * 3) * self.every
            delay = moment - self.world.now
            entry = publishing.begin(number)
            entry.due = moment
            with publishing.told([entry]):
                data = {"by": publishing.name, "number": number, "due": moment}
                publishing.bus.publish(TOPIC, data, delay=delay)

    def _ack(self, message: zkms.Message, place: Place, client: str) -> bool:
        if self.world.now < message.data["due"] - 1e-3:
            self.problem(f"{place} came {message.data['due'] - self.world.now:.3f} s early")
        return super()._ack(message, place, client)

    def finished(self) -> bool:
        """Whether no message is delayed any more, and all have arrived or are dead letters."""
        return self.published and not self.remains.entries() and len(self._lost()) <= len(self.remains.letters())

    def _lost(self) -> set[Place]:
        return self.stored() - set(self.acked) - self.unsure

    def check(self) -> None:
        """Check everything but the order; messages that had no subscribers when they were due are dead letters."""
        dead = self.remains.letters()
        lost = self._lost()
        if len(lost) > len(dead):
            self.problem(f"stored and never acked: {sorted(lost)}; dead letters: {dead}")
        if ghosts := self.refused() & (set(self.acked) | self.unsure):
            self.problem(f"refused and delivered all the same: {sorted(ghosts)}")
        if left := self.remains.entries():
            self.problem(f"left in the queue: {left}")
