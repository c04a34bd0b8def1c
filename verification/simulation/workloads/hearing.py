"""Live subscribers and their promises: one order, nothing twice, nothing missed without a gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import zkms
from verification.simulation import primitives
from verification.simulation.clockwork import Process, World, running
from verification.simulation.workloads.base import TOPIC, Workload
from verification.simulation.workloads.publishing import Place, Sent


@dataclass
class Heard:
    """What one subscription received, and when: messages, or None for a gap."""

    process: Process
    client: str
    subscription: zkms.Subscription | None = None
    since: float = float("inf")
    told: list[tuple[Place | None, float]] = field(default_factory=list)
    over: bool = False
    """Whether it has ended."""

    @property
    def places(self) -> list[Place]:
        """The messages, in order."""
        return [place for place, _ in self.told if place is not None]

    @property
    def alive(self) -> bool:
        """Whether it still receives messages."""
        return self.process.alive and not self.over


class Hearing(Workload):
    """A workload with live subscribers."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.heard: list[Heard] = []

    def listen(self, bus: zkms.Bus, client: str, *, slow: float = 0.0, limit: int = 100_000) -> Heard:
        """Subscribe; a slow one takes up to so many seconds for a message."""
        heard = Heard(running().process, client)

        def handler(message: zkms.Message) -> None:
            heard.told.append(((message.data["by"], message.data["number"]), self.world.now))
            if slow:
                primitives.sleep(self.world.random.random() * slow)

        def failed(error: Exception, _message: zkms.Message | None) -> None:
            if not isinstance(error, zkms.ConnectionLost):
                self.problem(f"{client} was told of {error!r}: {heard.places}")

        while True:
            try:
                heard.subscription = bus.subscribe(
                    TOPIC,
                    handler,
                    on_gap=lambda _gap: heard.told.append((None, self.world.now)),
                    on_error=failed,
                    limit=limit,
                )
                break
            except zkms.ConnectionLost:
                continue
        heard.since = self.world.now
        self.heard.append(heard)
        return heard

    def alive(self) -> list[Heard]:
        """Return the subscriptions that must receive everything from now on."""
        return [heard for heard in self.heard if heard.alive]

    def seen(self) -> set[Place]:
        """Return the messages that any subscription received."""
        return {place for heard in self.heard for place in heard.places}

    # -- judgement -----------------------------------------------------------------------------------------------

    def waits(self) -> bool:
        """Whether a message is missing, or something is left to clean."""
        expected = self.together(self.seen())
        owed = any(True for heard in self.alive() for _ in self.missed(heard, expected))
        return owed or bool(self.left())

    def left(self) -> list[str]:
        """Return what should have been removed: queues without subscription, acked entries, unused bodies."""
        mine = {heard.subscription.id for heard in self.alive() if heard.subscription is not None}
        strangers = [queue for queue in self.remains.queues() if "~" in queue and queue not in mine]
        entries = [path for path in self.remains.entries() if "~" in path]
        return [*strangers, *entries, *self.remains.bodies(), *self.remains.flags()]

    def missed(self, heard: Heard, expected: set[Place]) -> Iterator[Place]:
        """Yield the expected messages that are missing, without a gap at their position."""
        places = {place: index for index, (place, _) in enumerate(heard.told) if place is not None}
        gaps = [(index, at) for index, (place, at) in enumerate(heard.told) if place is None]
        for name, all_ in self.sent.items():
            before = -1
            waiting: list[Sent] = []
            for sent in all_:
                index = places.get((name, sent.number))
                if index is None:
                    waiting += [sent] if (name, sent.number) in expected else []
                    continue
                if not any(before < gap < index for gap, _ in gaps):
                    # What was published before subscribe() returned may or may not come.
                    yield from ((name, s.number) for s in waiting if before >= 0 or s.begun >= heard.since)
                before, waiting = index, []
            if heard.alive:
                # Nothing later came: after a gap, only messages that were published after it must come.
                told = max((at for gap, at in gaps if gap > before), default=None)
                floor = told if told is not None else heard.since if before < 0 else 0.0
                yield from ((name, s.number) for s in waiting if s.begun >= floor)

    def check_heard(self) -> None:
        """Check the order, duplicates, and missing messages."""
        expected = self.together(self.seen())
        refused = self.refused()
        for heard in self.heard:
            told = [place for place, _ in heard.told]
            if phantoms := refused & set(told):
                self.problem(f"{heard.client} was told {sorted(phantoms)}, which was refused")
            for name in self.sent:
                numbers = [number for by, number in heard.places if by == name]
                if any(later <= earlier for earlier, later in pairwise(numbers)):
                    self.problem(f"{heard.client} was told {name}'s in the order {numbers}")
            if missed := sorted(self.missed(heard, expected)):
                self.problem(f"{heard.client} never heard of {missed} nor of a gap: {told}")
        for one, other in combinations(self.heard, 2):
            rank = {place: index for index, place in enumerate(one.places)}
            common = [place for place in other.places if place in rank]
            for earlier, later in pairwise(common):
                if rank[earlier] > rank[later]:
                    self.problem(f"{earlier} came before {later} to {other.client}, and after it to {one.client}")
        if left := self.left():
            self.problem(f"left behind: {left}")
        if letters := self.remains.letters():
            self.problem(f"set aside: {letters}")

    def had_one_session(self, heard: Heard) -> bool:
        """Whether a process has never lost its session: then it missed nothing for that reason."""
        sessions = self.world.ensemble.sessions.values()
        return not any(s.ended for s in sessions if s.connection is not None and s.connection.process is heard.process)
