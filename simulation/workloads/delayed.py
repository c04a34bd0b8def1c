"""Delayed messages: none early, none lost, none twice, whoever leads the cleaners."""

from __future__ import annotations

import zkms
from simulation import primitives
from simulation.workloads.base import TOPIC, Sent
from simulation.workloads.durable import Durable


class Delayed(Durable):
    """A durable reader, two publishers, and all of them stand for election."""

    name = "delayed"
    readers = 1
    every = 2.0

    def publish(self, bus: zkms.Bus, name: str, number: int, sent: list[Sent]) -> None:
        """With a delay of a few seconds; many are due at the same moment."""
        moment = int(self.world.now / self.every + 1 + self.world.random.random() * 3) * self.every
        delay = moment - self.world.now
        entry = Sent(number, self.world.now, due=moment)
        sent.append(entry)
        try:
            bus.publish(TOPIC, {"by": name, "number": number, "due": entry.due}, delay=delay)
        except (zkms.NoSubscribers, zkms.NoCleaner):
            entry.state = "refused"
        except zkms.ConnectionLost as error:
            entry.state = "unknown" if error.outcome_unknown else "refused"
        else:
            entry.state = "stored"

    def _read(self, client: str, _number: int) -> None:
        bus = self.connect(client)
        while True:
            try:
                sub = bus.subscribe(TOPIC, name="d")
                break
            except (zkms.ConnectionLost, zkms.SubscriptionInUse):
                primitives.sleep(1.0)
        self._work(sub, client)

    def _ack(self, message: zkms.Message, place: tuple[str, int], client: str) -> bool:
        if self.world.now < message.data["due"] - 1e-3:
            self.problem(f"{place} came {message.data['due'] - self.world.now:.3f} s early")
        return super()._ack(message, place, client)

    def finished(self) -> bool:
        """Whether nothing waits any more, and all has arrived or is a dead letter."""
        return self.published and not self._left() and len(self._lost()) <= len(self._dead())

    def _lost(self) -> set[tuple[str, int]]:
        return self.stored() - set(self.acked) - self.unsure

    def _dead(self) -> list[str]:
        """Dead letters: what was due when nobody was subscribed."""
        znodes = self.world.ensemble.leader.tree.znodes
        return [path for path in znodes if path.startswith("/zkms/dead/") and path.count("/") == 5]

    def check(self) -> None:
        """Order is no promise here."""
        dead = self._dead()
        lost = self._lost()
        if len(lost) > len(dead):
            self.problem(f"stored and never acked: {sorted(lost)}; dead letters: {dead}")
        if ghosts := self.refused() & (set(self.acked) | self.unsure):
            self.problem(f"refused and delivered all the same: {sorted(ghosts)}")
        if left := self._left():
            self.problem(f"left in the queue: {left}")
