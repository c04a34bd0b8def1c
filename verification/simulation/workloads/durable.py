"""A durable subscription: each message is acked exactly once, in order, also when its reader changes."""

from __future__ import annotations

from typing import NamedTuple

import zkms
from verification.simulation import primitives
from verification.simulation.clockwork import World
from verification.simulation.workloads.base import TOPIC, Workload
from verification.simulation.workloads.publishing import Place
from zkms.zookeeper.session import State


class Delivery(NamedTuple):
    """A message that was delivered."""

    place: Place
    client: str


class Durable(Workload):
    """One reader, one that takes over now and then, two publishers."""

    name = "durable"
    without = ("clock",)
    ways: tuple[str, ...] = ("one", "many", "stream")
    priorities = (0, 0, 0, 5)
    readers = 2
    most = 4
    """The most messages that a reader fetches together; it acks each by itself, not always in order."""
    at_once = True
    """Whether it sometimes acks them all at once instead."""
    naks = 0.1
    """The probability that a message is nacked."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.delivered: list[Delivery] = []
        self.acked: dict[Place, str] = {}
        self.unsure: set[Place] = set()
        """Messages whose ack has no reply."""
        self.returned: dict[Place, str] = {}
        """Nacked messages that are not delivered again yet, and who nacked them."""

    def start(self) -> None:
        """Readers and publishers."""
        for number in range(self.readers):
            self.process(f"read{number}", lambda life, number=number: self._read(f"read{number}-{life}", number))  # type: ignore[misc]
        self.publisher("pub0")
        self.publisher("pub1")

    # -- reading -------------------------------------------------------------------------------------------------

    def subscribe(self, bus: zkms.Bus, number: int) -> zkms.Consumer:
        """Subscribe as the reader, or take over."""
        takeover = bool(number) and not self.healed
        return bus.subscribe(TOPIC, name="d", takeover=takeover, max_attempts=None)

    def _read(self, client: str, number: int) -> None:
        bus = self.connect(client)
        if number:
            primitives.sleep(self.world.random.random() * 10.0)
        while True:
            try:
                sub = self.subscribe(bus, number)
            except (zkms.ConnectionLost, zkms.SubscriptionInUse):
                primitives.sleep(1.0)
                continue
            self._work(bus, sub, client)
            if not sub.closed:
                self._leave(sub)
            if number and self.chance(0.2):
                return  # the bus stays as it is

    def _leave(self, sub: zkms.Consumer) -> None:
        """Close the subscription without unsubscribing."""
        try:
            sub.close()
        except zkms.ConnectionLost:
            primitives.sleep(0.5)

    def _gives_up(self, bus: zkms.Bus) -> bool:
        """Whether a reader stops because ZooKeeper does not answer."""
        return bus.parts.session.state is not State.CONNECTED and self.chance(0.5)

    def _work(self, bus: zkms.Bus, sub: zkms.Consumer, client: str) -> None:
        """Read until another process owns the subscription, or for a random time."""
        while self.healed or not self.chance(0.05):
            try:
                messages = sub.fetch(self.number(self.most), timeout=self.number(5))
            except (zkms.LostOwnership, zkms.NotSubscribed):
                return
            except zkms.ConnectionLost:
                continue
            if not messages and (sub.closed or self._gives_up(bus)):
                return
            hands = [(message, self._given(message, client)) for message in messages]
            if self.at_once and messages and self.chance(0.2):
                self._ack_all(sub, hands, client)
                continue
            if self.chance(0.5):
                hands.reverse()
            for message, again in hands:
                self._deal(message, again, client)

    def _given(self, message: zkms.Message, client: str) -> str | None:
        """Note a delivery, and return who is known to have acked the message already."""
        place = message.data["by"], message.data["number"]
        if place not in {delivery.place for delivery in self.delivered}:
            before = [p for p, who in self.returned.items() if who == client and self._line(p) == self._line(place)]
            if any(number < place[1] for _, number in before):
                self.problem(f"{place} was given to {client}, which has given {before} back, and not got again")
        self.returned.pop(place, None)
        self.delivered.append(Delivery(place, client))
        return self.acked.get(place)

    def _deal(self, message: zkms.Message, again: str | None, client: str) -> None:
        place = message.data["by"], message.data["number"]
        if not self.healed and self.chance(self.naks):
            self._nak(message, place, client)
        elif self._ack(message, place, client) and again is not None:
            # A process that was stopped may continue with messages in flight; but its acks must be refused.
            self.problem(f"{place} was acked by {again}, and then given to {client}, which could ack it too")

    def _nak(self, message: zkms.Message, place: Place, client: str) -> None:
        self.returned[place] = client
        try:
            message.nak(delay=self.world.random.random())
        except (zkms.LostOwnership, zkms.ConnectionLost):
            self.returned.pop(place, None)

    def _ack(self, message: zkms.Message, place: Place, client: str) -> bool:
        """Ack, and return whether that was or may have been stored."""
        unsure = place not in self.unsure
        self.unsure.add(place)  # if we are killed now, the outcome is unknown
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

    def _ack_all(self, sub: zkms.Consumer, hands: list[tuple[zkms.Message, str | None]], client: str) -> None:
        places = [(message.data["by"], message.data["number"]) for message, _ in hands]
        self.unsure.update(places)
        try:
            sub.ack([message for message, _ in hands])
        except (zkms.LostOwnership, zkms.ConnectionLost):
            return  # those of one entry may be stored, and those of another not
        for place in places:
            if place in self.acked:
                self.problem(f"{place} was acked by {self.acked[place]} and, with others, by {client}")
            self.acked[place] = client

    # -- judgement -----------------------------------------------------------------------------------------------

    def _line(self, place: Place) -> tuple[str | None, int]:
        """Return what messages are ordered by: a publisher's messages of one priority."""
        name, number = place
        return name, self.sent[name][number].priority

    def finished(self) -> bool:
        """Whether all that is stored is acked, and the queue is empty."""
        return self.published and self._expected() <= set(self.acked) | self.unsure and not self.remains.entries()

    def _expected(self) -> set[Place]:
        return self.together({delivery.place for delivery in self.delivered})

    def check(self) -> None:
        """Check for messages that are lost, out of order, or refused and delivered."""
        done = set(self.acked) | self.unsure
        if lost := self._expected() - done:
            self.problem(f"stored and never acked: {sorted(lost)}")
        if ghosts := self.refused() & {delivery.place for delivery in self.delivered}:
            self.problem(f"refused and delivered all the same: {sorted(ghosts)}")
        self.check_order()
        if left := [*self.remains.entries(), *self.remains.bodies(), *self.remains.letters()]:
            self.problem(f"left behind: {left}")

    def check_order(self) -> None:
        """Messages came in order when they came for the first time."""
        lines: dict[tuple[str | None, int], list[int]] = {}
        for place in dict.fromkeys(delivery.place for delivery in self.delivered):
            lines.setdefault(self._line(place), []).append(place[1])
        for line, numbers in lines.items():
            if numbers != sorted(numbers):
                self.problem(f"the messages of {line[0]} came in the order {numbers}")
