"""What all workloads share: processes that start again when they are killed, and publishers that keep a record."""

from __future__ import annotations

from collections.abc import Callable

import zkms
from verification.simulation import primitives
from verification.simulation.clockwork import Process, World
from verification.simulation.workloads.publishing import MOST, Place, Publishing, Sent
from verification.simulation.workloads.remains import Remains

SESSION = 4.0
TOPIC = "t"
LOOK = 0.1
"""Seconds between two looks whether all is done."""


class Workload:
    """A few processes with something to do."""

    name = ""
    without: tuple[str, ...] = ()
    """Faults that do not matter here."""
    messages = 14
    ways: tuple[str, ...] = ("one",)
    """How its publishers publish: see publishing.py."""
    priorities: tuple[int, ...] = (0,)
    every = 0.0
    """Seconds between the times at which much happens; faults are close to those."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.processes: list[Process] = []
        self.sent: dict[str, list[Sent]] = {}
        self.problems: list[str] = []
        self.remains = Remains(world.ensemble)
        self.healed = False
        self._publishing: set[str] = set()
        self._looked = 0.0

    # -- to be filled --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the processes."""
        raise NotImplementedError

    def finished(self) -> bool:
        """Whether everything has arrived."""
        raise NotImplementedError

    def check(self) -> None:
        """Add what is wrong to `problems`."""
        raise NotImplementedError

    # -- processes -----------------------------------------------------------------------------------------------

    def process(self, name: str, main: Callable[[int], None], *, again: bool = True) -> None:
        """Run `main(life)` in a process; when it is killed another one begins its next life, if `again`."""
        place = len(self.processes)

        def begin(life: int) -> None:
            process = Process(self.world, f"{name}-{life}")
            if life == 1:
                self.processes.append(process)
            else:
                self.processes[place] = process
            if again:
                process.ended.append(lambda: self.world.call_in(1.0, begin, life + 1))
            process.spawn("main", lambda: main(life))

        begin(1)

    def connect(self, client_id: str) -> zkms.Bus:
        """Connect, however long it takes; a restarted process is another client."""
        while True:
            try:
                return zkms.connect("zk:2181", client_id=client_id, session_timeout=SESSION)
            except zkms.ConnectionLost:
                primitives.sleep(0.5)

    def chance(self, likely: float) -> bool:
        """Return True with this probability."""
        return self.world.random.random() < likely

    def number(self, most: int) -> int:
        """From 1 to `most`."""
        return 1 + int(self.world.random.random() * most)

    def publisher(self, name: str) -> None:
        """A process that publishes numbers, one after the other, each once; killed, it is not started again."""
        self._publishing.add(name)
        sent = self.sent[name] = []

        def main(_life: int) -> None:
            bus = self.connect(name)
            publishing = Publishing(self, bus, TOPIC, name, sent)
            while len(sent) < self.messages:
                primitives.sleep(self.world.random.random() ** 4 * 6.0)  # in bursts
                first = len(sent)
                last = min(self.messages, first + self.number(MOST)) if self.ways != ("one",) else first + 1
                self.publish(publishing, range(first, last))
            if self.chance(0.3):
                bus.close()
            self._publishing.discard(name)

        self.process(name, main, again=False)
        self.processes[-1].ended.append(lambda: self._publishing.discard(name))

    def publish(self, publishing: Publishing, numbers: range) -> None:
        """Publish these, and note what is known of them."""
        publishing.some(numbers)

    def turned_away(self, error: zkms.ZkmsError, entries: list[Sent]) -> None:
        """Handle messages that were refused, for workloads that check the reason."""

    def key(self, name: str, number: int) -> str | None:
        """The key of a message."""
        return None

    @property
    def published(self) -> bool:
        """Whether every publisher is done."""
        return not self._publishing

    def done(self) -> bool:
        """Whether it is finished; checked only now and then, because that takes time."""
        if self.world.now < self._looked + LOOK:
            return False
        self._looked = self.world.now
        return self.finished()

    def problem(self, text: str) -> None:
        """Add a broken promise."""
        self.problems.append(text)

    def stored(self) -> set[Place]:
        """What was certainly stored."""
        return {(name, sent.number) for name, all_ in self.sent.items() for sent in all_ if sent.state == "stored"}

    def refused(self) -> set[Place]:
        """What was certainly not."""
        return {(name, sent.number) for name, all_ in self.sent.items() for sent in all_ if sent.state == "refused"}

    def together(self, seen: set[Place]) -> set[Place]:
        """Return the messages that must be stored: those known to be, and those whose frame was seen."""
        found = self.stored() | seen
        for name, all_ in self.sent.items():
            frames = {sent.frame for sent in all_ if (name, sent.number) in found}
            found |= {(name, sent.number) for sent in all_ if sent.frame in frames}
        return found
