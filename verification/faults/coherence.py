"""One trial of caches: processes read and write through them under a nemesis, and stale reads are counted."""

from __future__ import annotations

from pathlib import Path

from verification.faults import pauses
from verification.faults.cache.run import Run
from verification.faults.cell import Cell
from verification.faults.crew import Crew
from verification.faults.journal import now
from verification.faults.nemesis import Nemesis
from verification.faults.orders import Orders
from verification.faults.stage import Stage
from verification.faults.trial import Plan

PROCESSES = 3
SHOWN = 10


def run_caches(nemesis: Nemesis, plan: Plan, stage: Stage, crew: Crew, directory: Path) -> Cell:
    """Run the trial, and judge it."""
    trail = None if plan.trail is None else str(plan.trail)
    run = Run(processes=PROCESSES, session_timeout=plan.session_timeout, trail=trail)
    hosts, names = stage.ensemble.server.hosts, [f"worker-{number}" for number in range(PROCESSES)]
    probe = Orders(name="probe", hosts=hosts, root=plan.root, journal=str(crew.journal("probe")), workload="cache")
    crew.start("probe", probe)
    ways = [stage.way(name) for name in names]
    killed: set[str] = set()
    with run.working(ways, plan.root, directory, lambda number: ways[number].settings) as workers:

        def kill(name: str) -> None:
            killed.add(name)
            workers[names.index(name)].kill()

        stage.kill = kill
        since = now()
        lasted = plan.blow(nemesis, stage)
        until = now()
        run.await_all(stage.ensemble.server, plan.root, PROCESSES - len(killed))
        settled = now() - until
    crew.end("probe")
    found = run.findings
    victims = {name.removeprefix("worker-") for name in stage.victims}
    writers = {name: at for name, at in found.moments.items() if at and name.partition("-")[0] not in victims}
    idle = [] if found.finished and found.reads else ["nothing was read, or no write was known to all"]
    return Cell(
        nemesis=nemesis.name,
        workload="cache",
        seed=plan.seed,
        seconds=until - since,
        fault=lasted,
        published=found.writes,
        unknown=found.writes - found.finished,
        delivered=found.reads,
        lost=len(found.broken) + len(found.stale),
        gaps=run.flushes.total(),
        pause=max((pauses.longest(at, since, until) for at in writers.values()), default=until - since),
        zookeeper=pauses.of_writes(crew.records("probe"), since, until),
        settled=settled,
        problems=[*crew.problems, *found.broken[:SHOWN], *found.stale[:SHOWN], *idle],
    )
