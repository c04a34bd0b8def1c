"""Dead letters: a failed message is delivered again in order, and ends once: acked, or as a dead letter."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import zkms
from verification.simulation import primitives
from verification.simulation.clockwork import World
from verification.simulation.workloads.base import TOPIC
from verification.simulation.workloads.durable import Durable
from verification.simulation.workloads.publishing import Place
from verification.simulation.workloads.remains import ROOT
from zkms.deliver.live import Handler
from zkms.tree.records import Ledger, decode

ATTEMPTS = 3
BACKOFF = 0.2
PARTITIONS = 2
KEYS = 2
REJECTED = "not wanted"


class Sorry(Exception):
    """What a handler raises."""


class Letters(Durable):
    """Two readers of a durable subscription or a group, with or without handlers; one that requeues dead letters."""

    name = "letters"
    naks = 0.3
    rejects = 0.1

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.buried: dict[Place, str] = {}
        """Messages that were rejected, or nacked once too often, and by whom; this is stored."""
        self._burying: dict[Place, str] = {}
        """The same, while this may not be stored."""
        self.letters: list[Place] = []
        """The dead letters at the last look."""
        self.letter_names: set[str] = set()
        """Their names."""
        self.left: set[str] = set()
        """Names of the dead letters that will not be requeued."""
        self.requeued: set[Place] = set()
        self._known: set[tuple[str, float]] = set()
        """Dead letters that were considered, by name and time: a server that lags may show them again."""
        self.handled: set[Place] = set()
        """Messages whose handler has returned, or raised for the last time: stored soon, or delivered again."""
        self._failed: dict[Place, tuple[str, int, float, list[int]]] = {}
        """Messages whose handler has raised: the reader, the attempt, when the next one is due, and the epochs."""

    def start(self) -> None:
        """Start the processes; the kind of the subscription and of the readers is random."""
        self._grouped, self._pushed = self.chance(0.5), self.chance(0.5)
        super().start()
        self.process("mend", lambda life: self._mend(f"mend-{life}"))

    def key(self, name: str, number: int) -> str | None:
        """In a group, a few for each publisher."""
        return f"{name}/{number % KEYS}" if self._grouped else None

    def _line(self, place: Place) -> tuple[str | None, int]:
        name, number = place
        return self.key(*place) or name, self.sent[name][number].priority

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self, client: str, number: int) -> None:
        if not self._pushed:
            super()._read(client, number)
            return
        bus = self.connect(client)
        primitives.sleep(number * self.world.random.random() * 10.0)
        while True:
            try:
                self._subscribe(bus, number, lambda message: self._handle(message, client))
                return
            except (zkms.ConnectionLost, zkms.SubscriptionInUse):
                primitives.sleep(1.0)

    def subscribe(self, bus: zkms.Bus, number: int) -> zkms.Consumer:
        """To read by hand."""
        return self._subscribe(bus, number, None)

    def _subscribe(self, bus: zkms.Bus, number: int, handler: Handler | None) -> zkms.Consumer:
        if self._grouped:
            return bus.subscribe(
                TOPIC, handler, group="g", partitions=PARTITIONS, max_attempts=ATTEMPTS, backoff=BACKOFF
            )
        takeover = bool(number) and not self.healed
        return bus.subscribe(TOPIC, handler, name="d", takeover=takeover, max_attempts=ATTEMPTS, backoff=BACKOFF)

    def _handle(self, message: zkms.Message, client: str) -> None:
        """A handler: returns, raises or rejects."""
        place = message.data["by"], message.data["number"]
        epochs = self._epochs()
        self._given(message, client)
        primitives.sleep(self.world.random.random() * 0.1)
        if not self.healed and self.chance(self.naks):
            if message.attempts >= ATTEMPTS:
                self.handled.add(place)
            elif self._epochs() == epochs:  # else its owner may have changed, which a handler is not told
                pause = BACKOFF * 2 ** (message.attempts - 1)
                self._failed[place] = client, message.attempts, self.world.now + pause, epochs
            raise Sorry
        if not self.healed and self.chance(self.rejects):
            self._bury(message, place, client)
            return
        self.handled.add(place)

    def _epochs(self) -> list[int]:
        """Return how often the owner of each partition has changed, by the leader's tree."""
        znodes = self.world.ensemble.leader.tree.znodes
        lanes = sorted(path for path in znodes if path.startswith(f"{ROOT}/groups/") and "/lanes/" in path)
        return [decode(znodes[path].data, Ledger).epoch for path in lanes]

    def _given(self, message: zkms.Message, client: str) -> str | None:
        place = message.data["by"], message.data["number"]
        if not 1 <= message.attempts <= ATTEMPTS:
            self.problem(f"{place} was given to {client} as attempt {message.attempts} of {ATTEMPTS}")
        epochs = self._epochs()
        held = {p for p, (who, _, _, since) in self._failed.items() if who == client and since == epochs}
        reader, attempt, due, since = self._failed.pop(place, ("", 0, 0.0, []))
        if reader == client and since == epochs:
            if message.attempts != attempt + 1:
                self.problem(f"{place} was given to {client} as attempt {message.attempts}, after attempt {attempt}")
            if self.world.now < due - 1e-3:
                self.problem(f"{place} was given to {client} again {due - self.world.now:.3f} s too early")
        elif place not in {delivery.place for delivery in self.delivered}:
            before = [p for p in held - self.requeued if self._line(p) == self._line(place) and p[1] < place[1]]
            if before:
                self.problem(f"{place} was given to {client}, whose handler has to try {before} again first")
        return super()._given(message, client) or self.buried.get(place)

    def _deal(self, message: zkms.Message, again: str | None, client: str) -> None:
        place = message.data["by"], message.data["number"]
        if not self.healed and self.chance(self.rejects):
            if self._bury(message, place, client) and again is not None:
                self.problem(f"{place} had its end with {again}, and {client} could reject it")
        else:
            super()._deal(message, again, client)

    def _nak(self, message: zkms.Message, place: Place, client: str) -> None:
        if message.attempts >= ATTEMPTS:
            self._bury(message, place, client, give_back=True)
            return
        super()._nak(message, place, client)
        if place in self.requeued:  # it is behind all others now
            self.returned.pop(place, None)

    def _bury(self, message: zkms.Message, place: Place, client: str, *, give_back: bool = False) -> bool:
        """Make it a dead letter; return whether it certainly is one."""
        known, end = place not in self.unsure, self._end_of(place)
        self.unsure.add(place)
        self._burying[place] = client
        try:
            if give_back:
                message.nak()
            else:
                message.reject(REJECTED)
        except zkms.LostOwnership as error:
            if known and not error.outcome_unknown:
                self.unsure.discard(place)
            return False
        except zkms.ConnectionLost:
            return False
        if end is not None:
            self.problem(f"{place} was buried by {client}, and had its end with {end}")
        if self._burying.pop(place, None) is not None:  # else it was requeued before the reply came
            self.buried[place] = client
        return True

    def _end_of(self, place: Place) -> str | None:
        return self.buried.get(place) or self.acked.get(place)

    # -- requeueing ----------------------------------------------------------------------------------------------

    def _mend(self, client: str) -> None:
        """Read the dead letters now and then, and requeue some; each is considered once."""
        bus = self.connect(client)
        while True:
            primitives.sleep(self.world.random.random() * 2.0)
            try:
                letters = bus.dead_letters()
                self.letters = [(letter.data["by"], letter.data["number"]) for letter in letters]
                self.letter_names = {letter.place.name for letter in letters}
                for letter, place in zip(letters, self.letters, strict=True):
                    self._judge(letter, place)
                    if letter.place.name not in self.left and not self._mended(bus, letter, place):
                        self.left.add(letter.place.name)
            except (zkms.ConnectionLost, zkms.NotSubscribed):
                continue

    def _judge(self, letter: zkms.DeadLetterInfo, place: Place) -> None:
        if letter.foreign:
            self.problem(f"{letter.id} is no message: {letter.reason}")
        elif not letter.reason.endswith(REJECTED) and letter.attempts < ATTEMPTS:
            self.problem(f"{place} is a letter after {letter.attempts} attempts: {letter.reason}")

    def _mended(self, bus: zkms.Bus, letter: zkms.DeadLetterInfo, place: Place) -> bool:
        """Requeue it with some probability; return whether it was or may have been requeued."""
        known = letter.place.name, letter.at
        if known not in self._known:
            if not self.chance(0.6):
                return False
            self._known.add(known)
            self.requeued.add(place)
            self.unsure.discard(place)
            self.handled.discard(place)
            for ends in (self.buried, self._burying, self.acked, self.returned, self._failed):
                ends.pop(place, None)
        with suppress(zkms.NodeMissing):  # requeued before, and the answer was lost
            bus.requeue(letter)
        return True

    # -- judgement -----------------------------------------------------------------------------------------------

    def finished(self) -> bool:
        """Whether every stored message has ended, and none will be requeued."""
        names = {path.rpartition("/")[2] for path in self.remains.letters()}
        return (
            self.published
            and not self.remains.entries()
            and names <= self.left
            and names == self.letter_names
            and not self._lost()
        )

    def _lost(self) -> set[Place]:
        return self._expected() - set(self.acked) - self.unsure - self.handled - set(self.letters)

    def check(self) -> None:
        """Check that each ends once and in order, and that only dead letters are left."""
        if lost := self._lost():
            self.problem(f"stored and neither done with nor a letter: {sorted(lost)}")
        if ghosts := self.refused() & {delivery.place for delivery in self.delivered}:
            self.problem(f"refused and delivered all the same: {sorted(ghosts)}")
        if twice := [place for place, times in Counter(self.letters).items() if times > 1]:
            self.problem(f"several letters of one message: {sorted(twice)}")
        if both := set(self.letters) & set(self.acked):
            self.problem(f"acked, and letters besides: {sorted(both)}")
        if gone := set(self.buried) - set(self.letters):
            self.problem(f"buried, and no letters: {sorted(gone)}")
        self.check_order()
        if left := [*self.remains.entries(), *self.remains.bodies()]:
            self.problem(f"left behind: {left}")
