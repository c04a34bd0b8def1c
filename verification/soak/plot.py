"""A run over time as a picture: what has to be flat, panel by panel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from verification.soak.results import Document

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GREY = "#8b949e"
BLUE = "#1f6feb"


def save(document: Document, file: Path) -> None:
    """Write it, in the format that the file's name says."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state

    figure = Figure(figsize=(15.6, 8.4), layout="constrained")
    grid = figure.subplots(2, 4).flat
    _rates(grid[0], document)
    _processes(grid[1], document, "rss_mb", "Memory of each process, MB", server=False)
    _processes(grid[2], document, "threads", "Threads of each process")
    _processes(grid[3], document, "files", "File descriptors of each process")
    _server(grid[4], document, ("znodes",), "Znodes")
    _server(grid[5], document, ("watches", "ephemerals", "connections"), "Watches, ephemerals, connections")
    _queued(grid[6], document)
    _load(grid[7], document)
    verdict = "flat" if document.ok else f"FAILED: {len(document.growing)} series grow, {len(document.broken)} broken"
    rate = document.facts.get("messages/s asked for", "")
    at = f", {rate:,.0f} messages/s" if isinstance(rate, (int, float)) else ""
    figure.suptitle(
        f"zkms {document.zkms}, {document.scenario}, {document.seconds / 60:.1f} min{at}, {document.cores} cores, "
        f"load {document.load_before:.1f} before it began: {verdict}"
    )
    figure.savefig(file, dpi=110)


def _rates(axes: Axes, document: Document) -> None:
    pairs = list(zip(document.samples, document.samples[1:], strict=False))
    times = [b.at / 60 for _, b in pairs]
    for name, colour in (("published", BLUE), ("received", GREY)):
        rates = [max(0.0, (getattr(b, name) - getattr(a, name)) / (b.at - a.at)) for a, b in pairs]
        axes.plot(times, rates, color=colour, label=name, linewidth=0.9)
    axes.legend()
    _dress(axes, "Messages/s")


def _processes(axes: Axes, document: Document, kind: str, title: str, *, server: bool = True) -> None:
    names = sorted({name for sample in document.samples for name in sample.processes})
    growing = {each.series for each in document.growing}
    for name in names:
        if name == "server" and not server:
            continue
        points = [(s.at / 60, getattr(s.processes[name], kind)) for s in document.samples if name in s.processes]
        wide = 2.2 if f"{name}: {kind}" in growing else 0.9
        axes.plot(*zip(*points, strict=True), linewidth=wide, label=name if len(names) <= 14 else None)
    if len(names) <= 14:
        axes.legend(fontsize=6, ncols=2)
    _dress(axes, title)


def _server(axes: Axes, document: Document, kinds: tuple[str, ...], title: str) -> None:
    for kind in kinds:
        points = [(s.at / 60, s.server[kind]) for s in document.samples if kind in s.server]
        if points:
            axes.plot(*zip(*points, strict=True), label=kind, linewidth=0.9)
    if len(kinds) > 1:
        axes.legend(fontsize=7)
    _dress(axes, title)


def _queued(axes: Axes, document: Document) -> None:
    axes.plot([s.at / 60 for s in document.samples], [s.queued for s in document.samples], color=BLUE, linewidth=0.9)
    _dress(axes, "Entries waiting in all queues")


def _load(axes: Axes, document: Document) -> None:
    axes.plot([s.at / 60 for s in document.samples], [s.load for s in document.samples], color=GREY, linewidth=0.9)
    _dress(axes, "Load average of the machine")


def _dress(axes: Axes, title: str) -> None:
    axes.set(xlabel="minutes", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
