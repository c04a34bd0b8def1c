"""The table as a page."""

from __future__ import annotations

import os
import platform

import msgspec

import zkms
from verification.faults.campaign import NEMESES, Campaign
from verification.faults.cell import Cell
from zkms.server.jars import server_jars, server_version

HOW = """\
Three ZooKeeper servers; publishers, consumers and caches in processes of their own, sessions of {session:g} s. Each
cell is {seconds:g} s of traffic: calm, the fault for about half of the time, calm again. Then publishers stop, and all
that they were told is stored has to arrive. A checker that knows nothing of zkms compares what publishers were told
with what handlers wrote down. Repeat with `make faults`; one cell with
`python -m verification.faults --nemesis N --workload W --seed S`. [More](../../docs/faults.md).

- *lost*: stored and not delivered; live: without a gap that was announced
- *duplicated*: beyond what the guarantee allows; live: delivered twice; else acked twice, or again to who had acked it
- *out of order*: per publisher; in groups per key; live also between subscribers; delayed messages have no such order
- *unknown*: publishers were told that it may have been stored
- *again*: delivered again before an ack was stored, as at-least-once allows
- *longest pause*: of any client that was not itself the victim, without a message stored or delivered; beside it three
  bare kazoo clients in the same run that write every 50 ms
- of caches, published are writes (unknown: not all nodes confirmed in time), delivered are reads, lost are reads of
  a value that its writer knew to be replaced, or that is older than `max_staleness`, gaps are flushes"""

HEAD = (
    "fault", "workload", "published", "unknown", "delivered", "lost", "duplicated", "out of order", "again", "gaps",
    "longest pause", "ZooKeeper's",
)  # fmt: skip


class Result(msgspec.Struct, kw_only=True):
    """All cells of a campaign, and the conditions."""

    zkms: str
    zookeeper: str
    python: str
    system: str
    cores: int
    where: str
    seconds: float
    seed: int
    load: float = 0.0
    """The machine's load average at the end."""
    cells: list[Cell]
    not_run: dict[str, str]


def result(campaign: Campaign) -> Result:
    """A campaign as it is written down."""
    return Result(
        zkms=zkms.__version__,
        zookeeper=server_version(server_jars()),
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        where=campaign.where,
        seconds=campaign.seconds,
        seed=campaign.seed,
        load=os.getloadavg()[0],
        cells=campaign.cells,
        not_run=campaign.not_run,
    )


def page(found: Result) -> str:
    """Markdown."""
    broken = [cell for cell in found.cells if not cell.holds]
    total = sum(cell.published for cell in found.cells)
    verdict = f"**A guarantee was broken in {len(broken)}** of" if broken else "No guarantee was broken in"
    lines = ["# Faults", "", HOW.format(session=4.0, seconds=found.seconds), ""]
    lines.append(
        f"zkms {found.zkms}, ZooKeeper {found.zookeeper} ({found.where}), Python {found.python}, {found.system}, "
        f"{found.cores} cores; seed {found.seed}. {verdict} {len(found.cells)} cells, {total:,} messages and writes."
    )
    if found.load > 2 * found.cores:
        lines.append(f"The machine had other work, load average {found.load:.0f}: pauses are longer for that.")
    lines += ["", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    lines += [_row(cell) for cell in found.cells]
    names = dict.fromkeys(cell.nemesis for cell in found.cells)
    lines += ["", "| fault | what is done |", "|---|---|", *(f"| {name} | {NEMESES[name].about} |" for name in names)]
    for cell in found.cells:
        if cell.audit is not None:
            lines += ["", f"Audit of the trails of {cell.nemesis} x {cell.workload}: {cell.audit}."]
        if cell.excused:
            lines += ["", f"{cell.nemesis} x {cell.workload}: {', '.join(cell.excused)}, which this fault excuses."]
        if not cell.holds:
            lines += ["", f"{cell.nemesis} x {cell.workload} (seed {cell.seed}), see {cell.evidence}:", ""]
            lines += [f"- {problem}" for problem in cell.problems]
    lines += ["", *(f"Not run: {name}: {reason}." for name, reason in found.not_run.items())]
    return "\n".join(lines).rstrip() + "\n"


def _row(cell: Cell) -> str:
    counts = (
        cell.published, cell.unknown, cell.delivered, cell.lost, cell.duplicated, cell.out_of_order, cell.repeated,
        cell.gaps,
    )  # fmt: skip
    name = cell.nemesis if cell.holds else f"**{cell.nemesis}**"
    figures = [f"{count:,}" for count in counts] + [f"{cell.pause:.1f} s", f"{cell.zookeeper:.1f} s"]
    return f"| {name} | {cell.workload} | {' | '.join(figures)} |"
