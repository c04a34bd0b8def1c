"""Live subscriptions: one order for all, nothing twice, nothing missed without a gap, nothing left behind."""

from __future__ import annotations

import zkms
from verification.simulation import primitives
from verification.simulation.workloads.hearing import Hearing


class Live(Hearing):
    """Three subscribers and two publishers; any of them may lead the cleaners."""

    name = "live"
    without = ("clock",)
    ways = ("one", "many", "stream")

    def start(self) -> None:
        """Start the subscribers first: without them, publishes are refused."""
        for number in range(3):
            self.process(f"sub{number}", lambda life, number=number: self._subscribe(f"sub{number}-{life}"))  # type: ignore[misc]
        self.publisher("pub0")
        self.publisher("pub1")

    def _subscribe(self, client: str) -> None:
        primitives.sleep(self.world.random.random() ** 2 * 6.0)  # some come when others publish already
        bus = self.connect(client)
        heard = self.listen(bus, client)
        while not self.healed and self.chance(0.4):  # some go, and come again
            primitives.sleep(self.world.random.random() * 8.0)
            heard.over = True
            try:
                if heard.subscription is not None:
                    heard.subscription.unsubscribe()
            except zkms.ConnectionLost:
                primitives.sleep(0.5)
            heard = self.listen(bus, client)

    def finished(self) -> bool:
        """Whether no message is missing, and everything of dead processes was removed."""
        return self.published and not self.waits()

    def check(self) -> None:
        """Check what was received, and that gaps have a reason."""
        self.check_heard()
        for heard in self.heard:
            if any(place is None for place, _ in heard.told) and self.had_one_session(heard):
                self.problem(f"{heard.client} was told of a gap, and its session has never ended: {heard.told}")
