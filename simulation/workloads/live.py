"""Live subscriptions: in order, nothing twice, nothing missed without a gap, no queue left behind."""

from __future__ import annotations

from dataclasses import dataclass, field

import zkms
from simulation import primitives
from simulation.clockwork import Process, running
from simulation.workloads.base import TOPIC, Workload


@dataclass
class Heard:
    """What one subscription was told: (publisher, number), or None for a gap."""

    process: Process
    client: str
    since: float
    told: list[tuple[str, int] | None] = field(default_factory=list)


class Live(Workload):
    """Three subscribers and two publishers; any of them may lead the cleaners."""

    name = "live"
    without = ("clock",)

    def __init__(self, world: object) -> None:
        super().__init__(world)  # type: ignore[arg-type]
        self.heard: list[Heard] = []

    def start(self) -> None:
        """Subscribers first; who publishes before them is refused."""
        for number in range(3):
            self.process(f"sub{number}", lambda life, number=number: self._subscribe(f"sub{number}-{life}"))  # type: ignore[misc]
        self.publisher("pub0")
        self.publisher("pub1")

    def _subscribe(self, client: str) -> None:
        primitives.sleep(self.world.random.random() ** 2 * 6.0)  # some come when others publish already
        bus = self.connect(client)
        heard = Heard(running().process, client, float("inf"))

        def handler(message: zkms.Message) -> None:
            heard.told.append((message.data["by"], message.data["number"]))

        while True:
            try:
                bus.subscribe(TOPIC, handler, on_gap=lambda _gap: heard.told.append(None))
                break
            except zkms.ConnectionLost:
                continue
        heard.since = self.world.now
        self.heard.append(heard)

    def finished(self) -> bool:
        """Whether nobody alive is owed anything, and what the dead left is gone."""
        return self.published and not any(self._owed(heard) for heard in self._alive()) and not self._left()

    def _alive(self) -> list[Heard]:
        return [heard for heard in self.heard if heard.process.alive]

    def _owed(self, heard: Heard) -> set[tuple[str, int]]:
        """What was stored since it subscribed, has not come, and was not announced as missed."""
        told = set(heard.told)
        last_gap = len(heard.told) - 1 - heard.told[::-1].index(None) if None in told else -1
        after = [each for each in heard.told[last_gap + 1 :] if each is not None]
        newest = {name: max([number for by, number in after if by == name], default=-1) for name in self.sent}
        owed = set()
        for name, all_ in self.sent.items():
            for sent in all_:
                if sent.state != "stored" or sent.begun < heard.since or (name, sent.number) in told:
                    continue
                if last_gap >= 0 and sent.number > newest[name] and newest[name] < 0:
                    continue  # the gap may have been about it
                owed.add((name, sent.number))
        return {each for each in owed if last_gap < 0 or each[1] > newest[each[0]] >= 0}

    def _left(self) -> list[str]:
        alive = {heard.client for heard in self._alive()}
        tree = self.world.ensemble.leader.tree.znodes
        names = tree["/zkms/messages"].children if "/zkms/messages" in tree else set()
        return [name for name in names if name.split("~")[0] not in alive]

    def check(self) -> None:
        """Order, duplicates, and what nobody was told of."""
        refused = self.refused()
        for heard in self.heard:
            for name in self.sent:
                newest, gap = -1, False
                begun = {sent.number: sent for sent in self.sent[name]}
                for each in heard.told:
                    if each is None:
                        gap = True
                    elif each[0] == name:
                        number = each[1]
                        if number <= newest:
                            self.problem(f"{heard.client} was told {each} after number {newest}: {heard.told}")
                        missed = [
                            skipped
                            for skipped in range(newest + 1, number)
                            if begun[skipped].state == "stored" and begun[skipped].begun >= heard.since
                        ]
                        if missed and not gap:
                            self.problem(f"{heard.client} never heard of {name}'s {missed} nor of a gap: {heard.told}")
                        newest, gap = number, False
                    if each in refused:
                        self.problem(f"{heard.client} was told {each}, which was refused")
        for heard in self._alive():
            if owed := self._owed(heard):
                self.problem(f"{heard.client} still waits for {sorted(owed)}: {heard.told}")
        if left := self._left():
            self.problem(f"queues of the dead are left: {left}")
