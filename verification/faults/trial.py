"""One trial of messages: publishers and consumers in processes of their own, a nemesis, and the checker's verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from verification.faults import pauses
from verification.faults.cell import Cell
from verification.faults.checker import Reader, Verdict, judge, missing, sent
from verification.faults.crew import Crew
from verification.faults.journal import Record, now
from verification.faults.nemesis import Nemesis
from verification.faults.orders import How, Orders, Workload
from verification.faults.stage import Stage
from zkms.server.errors import ServerError

UP = 90.0
"""Seconds for all processes to be there."""
SETTLED = 60.0
"""Seconds in which everything that was stored has to arrive after the last publish."""
GRACE = 0.7
"""Seconds for what might come twice."""
PATIENCE = (60.0, 1.5)
"""Of the first publisher and of the second: seconds until a publish gives up."""
CONSUMERS: dict[Workload, list[tuple[str, How]]] = {
    "live": [("", "handler"), ("", "handler"), ("", "handler")],
    "durable": [("audit", "fetch"), ("billing", "manual")],
    "group": [("workers", "fetch"), ("workers", "manual"), ("workers", "handler")],
    "delayed": [("audit", "fetch"), ("billing", "manual")],
}
"""Of each workload: the subscription of each consumer, and how it takes messages."""


@dataclass
class Plan:
    """How long, with what."""

    seconds: float
    seed: int
    root: str
    trail: Path | None = None
    session_timeout: float = 4.0

    def fault_lasts(self, nemesis: Nemesis) -> float:
        """Seconds between its beginning and its end."""
        usual = self.seconds * 0.45
        return max(usual, self.session_timeout + 2.0) if nemesis.longer_than_a_session else usual

    def blow(self, nemesis: Nemesis, stage: Stage) -> float:
        """Calm, the fault, and calm again; returns how long the fault lasted."""
        time.sleep(self.seconds * 0.2)
        begun = now()
        nemesis.begin(stage)
        time.sleep(max(0.0, begun + self.fault_lasts(nemesis) - now()))
        nemesis.end(stage)
        lasted = now() - begun
        time.sleep(self.seconds * 0.35)
        return lasted


@dataclass
class Trial:
    """Processes of one workload on one stage."""

    workload: Workload
    plan: Plan
    stage: Stage
    crew: Crew
    _publishers: list[str] = field(default_factory=list)
    _consumers: dict[str, str] = field(default_factory=dict)
    """Names of consumers, with their subscriptions."""
    _orders: dict[str, tuple[str, Orders]] = field(default_factory=dict)
    _killed: set[str] = field(default_factory=set)

    def run(self, nemesis: Nemesis) -> Cell:
        """Run the trial, and judge it."""
        self.stage.kill, self.stage.again = self._kill, self._again
        self.crew.start("probe", self._new("probe", hosts=self.stage.ensemble.server.hosts))
        for number, (subscription, how) in enumerate(CONSUMERS[self.workload]):
            name = f"consumer-{number}"
            self._consume(self._new(name, subscription=subscription or name, how=how))
        self._await(lambda: all(self.crew.records(name) for name in self._consumers), "consumers that have subscribed")
        for number, patience in enumerate(PATIENCE):
            self._publish(self._new(f"publisher-{number}", patience=patience, seed=self.plan.seed + number))
        self._await(self._flows, "messages for every consumer")
        since = now()
        lasted = self.plan.blow(nemesis, self.stage)
        until = now()
        self.crew.end(*self._publishers)
        settled = self._settle()
        self.crew.end("probe", *self._consumers)
        return self._judge(nemesis, since, until, lasted, settled)

    def _new(self, name: str, hosts: str | None = None, **options: object) -> Orders:
        plan = self.plan
        given = {
            "name": name,
            "hosts": hosts or self.stage.way(name).hosts,
            "root": plan.root,
            "journal": str(self.crew.journal(name)),
            "workload": self.workload,
            "session_timeout": plan.session_timeout,
            "cleaner": self.workload == "delayed" and name.startswith("consumer"),
            "trail": None if plan.trail is None else str(plan.trail),
        }
        return msgspec.convert(given | options, Orders)

    def _publish(self, orders: Orders) -> None:
        self._publishers.append(orders.name)
        self._start("publisher", orders)

    def _consume(self, orders: Orders) -> None:
        self._consumers[orders.name] = orders.subscription
        self._start("consumer", orders)

    def _start(self, program: str, orders: Orders) -> None:
        self._orders[orders.name] = program, orders
        self.crew.start(program, orders, self.stage.way(orders.name).settings)

    def _kill(self, name: str) -> None:
        self._killed.add(name)
        self.crew.kill(name)

    def _again(self, name: str) -> None:
        """Start another process in place of a killed one, with a new name, as the old session may still exist."""
        program, orders = self._orders[name]
        new = f"{name}-again"
        subscription = new if self.workload == "live" else orders.subscription
        again = self._new(new, subscription=subscription, how=orders.how, patience=orders.patience, seed=orders.seed)
        (self._publish if program == "publisher" else self._consume)(again)
        self.stage.victims.add(new)  # its late start is no pause
        self._await(lambda: bool(self.crew.records(new)), f"sign of life from {new}")

    def _flows(self) -> bool:
        """Whether every subscription has had something of every publisher."""
        heard: dict[str, set[str]] = {subscription: set() for subscription in self._consumers.values()}
        for reader in self._readers():
            heard[reader.subscription] |= {who for (who, _), *_ in reader.got()}
        return all(heard[subscription] >= set(self._publishers) for subscription in heard)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = now() + UP
        while not condition():
            self.crew.look()
            if self.crew.problems:
                raise ServerError(f"the trial did not begin: {self.crew.problems[0]}")
            if now() > deadline:
                raise ServerError(f"the trial did not begin: no {what} after {UP:g} s")
            time.sleep(0.05)

    def _settle(self) -> float:
        """Wait until everything has arrived, and return how long that took."""
        messages, began = sent(self._published()), now()
        while missing(self.workload, messages, self._readers()):
            if now() > began + SETTLED:
                break
            time.sleep(0.2)
        took = now() - began
        time.sleep(GRACE)
        return took

    def _published(self) -> Iterable[Record]:
        return [record for name in self._publishers for record in self.crew.records(name)]

    def _readers(self) -> list[Reader]:
        return [
            Reader(name, subscription, self.crew.records(name), name in self._killed)
            for name, subscription in self._consumers.items()
        ]

    def _judge(self, nemesis: Nemesis, since: float, until: float, lasted: float, settled: float) -> Cell:
        published, readers = self._published(), self._readers()
        verdict = judge(self.workload, sent(published), readers)
        excused = [kind for kind in sorted(nemesis.excuses) if getattr(verdict, kind)]
        notes = [f"{kind}: {getattr(verdict, kind)}" for kind in excused]
        for kind in excused:
            setattr(verdict, kind, 0)
        examples = [text for text in verdict.examples if text.partition(":")[0] not in excused]
        return Cell(
            nemesis=nemesis.name,
            workload=self.workload,
            seed=self.plan.seed,
            seconds=until - since,
            fault=lasted,
            published=verdict.published,
            unknown=verdict.unknown,
            refused=verdict.refused,
            delivered=verdict.delivered,
            lost=verdict.lost,
            duplicated=verdict.duplicated,
            out_of_order=verdict.out_of_order,
            early=verdict.early,
            phantom=verdict.phantom,
            repeated=verdict.repeated,
            gaps=verdict.gaps,
            pause=pauses.of_traffic(published, readers, since, until, but=self.stage.victims),
            zookeeper=pauses.of_writes(self.crew.records("probe"), since, until),
            settled=settled,
            problems=[*self.crew.problems, *examples, *_idle(verdict)],
            excused=notes,
        )


def _idle(verdict: Verdict) -> list[str]:
    """Report a trial in which nothing was published or delivered."""
    return [] if verdict.published and verdict.delivered else ["nothing was published, or nothing was delivered"]
