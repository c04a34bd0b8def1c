"""The faults of a schedule: a list that the seed determines, and that can be shortened."""

from __future__ import annotations

import random
from dataclasses import dataclass

from verification.simulation.clockwork import Process
from verification.simulation.ensemble import Connection, Ensemble

MOST = 6
KINDS = (
    "cut",
    "cut before commit",
    "cut after commit",
    "black hole",
    "expire",
    "stop",
    "stop for long",
    "kill",
    "down",
    "slow",
    "clock",
)


@dataclass(frozen=True)
class Fault:
    """A fault of one process, or of ZooKeeper."""

    at: float
    kind: str
    target: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.at:.3f} s: {self.kind} (process {self.target}, {self.seconds:.2f} s)"


def plan(
    seed: int, processes: int, seconds: float, *, without: tuple[str, ...] = (), every: float = 0.0
) -> list[Fault]:
    """Return the faults of the first `seconds` of a schedule; most are close to a multiple of `every`."""
    chance = random.Random(f"faults {seed}")
    kinds = [kind for kind in KINDS if kind not in without]
    faults = []
    for _ in range(chance.randint(0, MOST)):
        kind = chance.choice(kinds)
        lasts = chance.uniform(5.0, 9.0) if kind == "stop for long" else chance.uniform(0.01, 3.0)
        at = chance.uniform(0.0, seconds)
        if every and chance.random() < 0.7:
            at = max(0.0, round(at / every) * every + chance.uniform(-0.05, 0.1))
        faults.append(Fault(at, kind, chance.randrange(processes), lasts))
    return sorted(faults, key=lambda fault: fault.at)


class Strike:
    """Injects faults into a world, and ends all of them."""

    def __init__(self, ensemble: Ensemble, processes: list[Process]) -> None:
        self._ensemble = ensemble
        self._world = ensemble.world
        self._processes = processes
        """By number; the successor of a killed process has the same number."""
        self._stopped: list[Process] = []

    def carry_out(self, fault: Fault) -> None:
        """Inject it now."""
        process = self._processes[fault.target]
        kind = fault.kind
        if kind == "cut":
            for connection in self._connections(process):
                connection.cut(arrives=self._world.random.random() < 0.5)
        elif kind in ("cut before commit", "cut after commit"):
            for connection in self._connections(process):
                connection.armed = kind.split()[1]
        elif kind == "black hole":
            for connection in self._connections(process):
                connection.black_hole = True
        elif kind == "expire":
            for connection in self._connections(process):
                self._ensemble.end(connection.session)
        elif kind in ("stop", "stop for long"):
            process.stop()
            self._stopped.append(process)
            self._world.call_in(fault.seconds, process.resume)
        elif kind == "kill":
            process.kill()
        elif kind == "down":
            self._ensemble.go_down()
            self._world.call_in(fault.seconds, self._ensemble.come_up)
        elif kind == "slow":
            self._ensemble.slow = True
            self._world.call_in(fault.seconds, self._fast)
        elif kind == "clock":
            process.skew += fault.seconds * (1 if fault.at * 1000 % 2 < 1 else -1)

    def _fast(self) -> None:
        self._ensemble.slow = False

    def _connections(self, process: Process) -> list[Connection]:
        return [connection for connection in self._ensemble.connections if connection.process is process]

    def heal(self) -> None:
        """End all faults."""
        for process in self._stopped:
            process.resume()
        self._ensemble.come_up()
        self._fast()
