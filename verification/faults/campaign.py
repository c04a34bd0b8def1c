"""Runs the requested cells one after another: nemesis by nemesis, on ensembles equipped for it."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product
from pathlib import Path

from verification.faults import clocks
from verification.faults.audit import audited
from verification.faults.cell import Cell
from verification.faults.clients import BlackHole, ClientClockJumped, ClientKilled, CutAfterCommit, SlowNetwork
from verification.faults.coherence import run_caches
from verification.faults.crew import Crew
from verification.faults.ensemble import Ensemble, Where, ensemble
from verification.faults.nemesis import Calm, Nemesis
from verification.faults.orders import Workload
from verification.faults.outages import (
    AllRestarted,
    DiskFull,
    FollowerKilled,
    FollowerPaused,
    LeaderKilled,
    LeaderPaused,
    ServerClockJumped,
)
from verification.faults.partitions import FollowerCutOff, LeaderCutOff, LeaderDeaf
from verification.faults.stage import Stage
from verification.faults.trial import Plan, Trial
from zkms.server.errors import ServerError
from zkms.testing.roots import new_root

NEMESES: dict[str, type[Nemesis]] = {
    kind.name: kind
    for kind in (
        Calm,
        LeaderKilled,
        FollowerKilled,
        AllRestarted,
        LeaderPaused,
        FollowerPaused,
        SlowNetwork,
        CutAfterCommit,
        BlackHole,
        ClientKilled,
        ClientClockJumped,
        LeaderCutOff,
        FollowerCutOff,
        LeaderDeaf,
        ServerClockJumped,
        DiskFull,
    )
}
"""By name, in an order in which neighbours share an ensemble."""
WORKLOADS: tuple[Workload, ...] = ("live", "durable", "group", "delayed", "cache")


@dataclass
class Campaign:
    """The cells to run, and their results."""

    where: Where
    seconds: float
    seed: int
    trail: bool
    keep: Path
    """Where the folders of violations go."""
    say: Callable[[str], None]
    cells: list[Cell] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    """Nemeses that could not be run here, and why."""

    def run(self, nemeses: Sequence[str], workloads: Sequence[Workload]) -> list[Cell]:
        """Run all; a broken guarantee does not end it."""
        chosen = [NEMESES[name]() for name in NEMESES if name in nemeses]
        self.not_run = {one.name: reason for one in chosen if (reason := obstacle(one, self.where))}
        chosen = [one for one in chosen if one.name not in self.not_run]
        total, began = len(chosen) * len(workloads), time.monotonic()
        for kit, those in groupby(chosen, key=lambda one: one.kit):
            with (
                tempfile.TemporaryDirectory(prefix="zkms-faults-") as directory,
                ensemble(self.where, kit, Path(directory)) as servers,
            ):
                for nemesis, workload in product(those, workloads):
                    cell = self.cell(nemesis, workload, servers, Path(directory))
                    self.cells.append(cell)
                    done = len(self.cells)
                    left = (time.monotonic() - began) / done * (total - done)
                    self.say(f"[{done}/{total}, {left / 60:.0f} min left] {line(cell)}")
        return self.cells

    def cell(self, nemesis: Nemesis, workload: Workload, servers: Ensemble, logs: Path) -> Cell:
        """Run one; the servers are healthy before and after it."""
        seed = random.Random(f"{self.seed} {nemesis.name} {workload}").randrange(2**31)
        directory = Path(tempfile.mkdtemp(prefix=f"{nemesis.name}-{workload}-", dir=logs))
        plan = Plan(self.seconds, seed, new_root(), trail=directory / "trail" if self.trail else None)
        stage = Stage(servers, directory, random.Random(seed), nemesis.proxied, nemesis.clocked)
        try:
            servers.heal()
            with stage, Crew(directory) as crew:
                if workload == "cache":
                    cell = run_caches(nemesis, plan, stage, crew, directory)
                else:
                    cell = Trial(workload, plan, stage, crew).run(nemesis)
            if plan.trail is not None:
                cell.audit = audited(plan.trail, directory / "report.html")
        except ServerError as error:
            cell = Cell(nemesis=nemesis.name, workload=workload, seed=seed, seconds=0, fault=0, problems=[str(error)])
        finally:
            servers.heal()
        if not cell.holds:
            cell.evidence = str(self._keep(directory, logs, cell))
        shutil.rmtree(directory)
        return cell

    def _keep(self, directory: Path, logs: Path, cell: Cell) -> Path:
        target = self.keep / f"{cell.nemesis}-{cell.workload}-{cell.seed}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(directory, target)
        for log in logs.glob("zookeeper.log*"):
            shutil.copy(log, target)
        return target


def obstacle(nemesis: Nemesis, where: Where) -> str | None:
    """Why a nemesis cannot be run here, or None."""
    if where == "containers" and nemesis.embedded_only:
        return "only on embedded servers"
    if nemesis.kit == "clocks" and clocks.library() is None:
        return f"the distribution's package {clocks.PACKAGE} is not installed"
    if nemesis.kit == "disks" and os.geteuid() != 0:
        return "only root can mount a disk to fill"
    return None


def line(cell: Cell) -> str:
    """A cell in a line."""
    text = (
        f"{cell.nemesis} x {cell.workload}: {cell.published:,} published, {cell.delivered:,} delivered, "
        f"{cell.lost} lost, {cell.duplicated} duplicated, {cell.out_of_order} out of order, "
        f"pause {cell.pause:.1f} s (ZooKeeper {cell.zookeeper:.1f} s)"
    )
    if cell.audit is not None:
        text += f", audit: {cell.audit}"
    return text if cell.holds else f"{text}; BROKEN, see {cell.evidence}: {cell.problems[:1]}"
