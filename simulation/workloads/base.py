"""What all workloads share: processes that start again when they are killed, and publishers that keep a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import zkms
from simulation import primitives
from simulation.clockwork import Process, World

SESSION = 4.0
TOPIC = "t"


@dataclass
class Sent:
    """What a publisher knows of one message."""

    number: int
    begun: float
    state: str = "unknown"
    """`stored`, `refused`, or `unknown`: nobody told it."""
    due: float = 0.0


class Workload:
    """A few processes with something to do."""

    name = ""
    without: tuple[str, ...] = ()
    """Faults that have nothing to do with what it shows."""
    messages = 6
    every = 0.0
    """Seconds between moments at which much happens, so that faults strike there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.processes: list[Process] = []
        self.sent: dict[str, list[Sent]] = {}
        self.problems: list[str] = []
        self._publishing = 0
        self.healed = False

    # -- to be filled --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the processes."""
        raise NotImplementedError

    def finished(self) -> bool:
        """Whether all has arrived that must."""
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
        """A bus, however long it takes; a process of a later life is another client."""
        while True:
            try:
                return zkms.connect("zk:2181", client_id=client_id, session_timeout=SESSION)
            except zkms.ConnectionLost:
                primitives.sleep(0.5)

    def publisher(self, name: str) -> None:
        """A process that publishes numbers, one after the other, each once; killed, it is not started again."""
        self._publishing += 1
        sent = self.sent[name] = []

        def ended() -> None:
            self._publishing -= 1

        def main(_life: int) -> None:
            bus = self.connect(name)
            for number in range(self.messages):
                primitives.sleep(self.world.random.random() ** 4 * 6.0)  # in bursts
                self.publish(bus, name, number, sent)
            ended()

        self.process(name, main, again=False)
        process = self.processes[-1]
        process.ended.append(lambda: None if len(sent) == self.messages and sent[-1].state != "unknown" else ended())

    def publish(self, bus: zkms.Bus, name: str, number: int, sent: list[Sent]) -> None:
        """Publish one, and note what is known of it."""
        entry = Sent(number, self.world.now)
        sent.append(entry)
        try:
            bus.publish(TOPIC, {"by": name, "number": number}, key=self.key(name, number))
        except zkms.NoSubscribers:
            entry.state = "refused"
        except zkms.ConnectionLost as error:
            entry.state = "unknown" if error.outcome_unknown else "refused"
        else:
            entry.state = "stored"

    def key(self, name: str, number: int) -> str | None:  # noqa: ARG002 - for those who have keys
        """The key of a message."""
        return None

    @property
    def published(self) -> bool:
        """Whether every publisher is done."""
        return self._publishing <= 0

    def problem(self, text: str) -> None:
        """Something is wrong."""
        self.problems.append(text)

    def stored(self) -> set[tuple[str, int]]:
        """What was certainly stored."""
        return {(name, sent.number) for name, all_ in self.sent.items() for sent in all_ if sent.state == "stored"}

    def refused(self) -> set[tuple[str, int]]:
        """What was certainly not."""
        return {(name, sent.number) for name, all_ in self.sent.items() for sent in all_ if sent.state == "refused"}
