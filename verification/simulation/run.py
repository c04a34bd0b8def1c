"""Runs one schedule: a world from a seed, a workload, its faults, and the outcome."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

from zkms_cleaner.cleaner import Cleaner

from verification.simulation import clockwork, primitives
from verification.simulation.ensemble import Ensemble
from verification.simulation.faults import Fault, Strike, plan
from verification.simulation.mechanisms import without
from verification.simulation.workloads.base import Workload
from verification.simulation.workloads.coherent import Coherent
from verification.simulation.workloads.delayed import Delayed
from verification.simulation.workloads.dropping import Dropping
from verification.simulation.workloads.durable import Durable
from verification.simulation.workloads.group import Group
from verification.simulation.workloads.letters import Letters
from verification.simulation.workloads.limits import Limits
from verification.simulation.workloads.live import Live
from verification.simulation.workloads.transactional import Transactional

WORKLOADS: dict[str, type[Workload]] = {
    each.name: each for each in (Live, Durable, Group, Limits, Transactional, Delayed, Coherent, Letters, Dropping)
}
TROUBLE = 14.0
"""Seconds of simulated time in which faults happen."""
PATIENCE = 120.0
"""Seconds after the last fault within which the workload must finish."""

_settings = Cleaner.__init__.__kwdefaults__ or {}
_settings.update(interval=5.0, grace=5.0)  # or no schedule would see it purge


@dataclass
class Outcome:
    """The outcome of a schedule."""

    seed: int
    workload: str
    faults: list[Fault]
    problems: list[str] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    stored: int = 0
    transactions: int = 0


def run(workload: str, seed: int, *, faults: Sequence[Fault] | None = None, mechanism: str | None = None) -> Outcome:
    """Run a schedule, perhaps without a mechanism; the same arguments lead to the same outcome, to the last step."""
    world = clockwork.World(seed)
    clockwork.enter(world)
    ensemble = world.ensemble = Ensemble(world)
    put_back = without(mechanism, ensemble) if mechanism else lambda: None
    work = WORKLOADS[workload](world)
    work.start()
    planned = (
        plan(seed, len(work.processes), TROUBLE, without=work.without, every=work.every)
        if faults is None
        else list(faults)
    )
    strike = Strike(ensemble, work.processes)
    outcome = Outcome(seed, workload, planned)
    for fault in planned:
        world.call_at(clockwork.START + fault.at, strike.carry_out, fault)
    try:
        world.run(lambda: False, clockwork.START + TROUBLE)
        strike.heal()
        work.healed = True
        if not world.run(work.done, world.now + PATIENCE):
            work.problem(f"not done {PATIENCE:g} s after the last fault; waiting: {_waiting(world)}")
        work.check()
    except clockwork.Stuck as stuck:
        work.problem(f"it spins: {stuck}")
    outcome.problems = work.problems + [
        f"{task.process.name}/{task.name} died of {error!r}" for task, error in world.failures
    ]
    outcome.steps, outcome.seconds = world.steps, world.now - clockwork.START
    outcome.stored, outcome.transactions = len(work.stored()), len(ensemble.leader.log)
    world.end()
    put_back()
    primitives.forget()
    return outcome


def _waiting(world: clockwork.World) -> str:
    """Return where the unfinished programs wait."""
    places = []
    for task in world.tasks:
        frame = task.greenlet.gr_frame
        if task.name == "main" and task.process.alive and not task.finished and frame is not None:
            calls = [
                f"{call.name}:{call.lineno}"
                for call in traceback.extract_stack(frame)
                if "simulation" not in call.filename
            ]
            places.append(f"{task.process.name} in {' > '.join(calls[-4:])}")
    return "; ".join(places) or "nobody"


def shrink(outcome: Outcome, mechanism: str | None = None, tries: int = 60) -> Outcome:
    """Return a failure of the same seed with as few faults as possible."""
    best = outcome
    place = 0
    while place < len(best.faults) and tries > 0:
        fewer = [fault for i, fault in enumerate(best.faults) if i != place]
        found = run(best.workload, best.seed, faults=fewer, mechanism=mechanism)
        tries -= 1
        if found.problems:
            best = found
        else:
            place += 1
    return best


def collect() -> None:
    """Free the memory of ended worlds, whose references are cyclic."""
    gc.collect()
