"""A run as a picture: one panel for each kind of experiment that was made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from zkms.bench.results import Document, Throughput

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"zkms": "#1f6feb", "original": "#d29922", "floor": "#8b949e", "kazoo": "#d29922"}
Panel = Callable[["Axes", Document], None]


def save(document: Document, file: Path) -> None:
    """Write it, in the format that the file's name says."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state

    panels = _panels(document)
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 4.2 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        panel(axes, document)
    machine = document.machine
    title = f"zkms {machine.zkms} on ZooKeeper {machine.zookeeper}, {machine.cores} cores"
    figure.suptitle(f"{title}\n{machine.others}" if machine.others else title)
    figure.savefig(file, dpi=120)


def _panels(document: Document) -> list[Panel]:
    panels: list[Panel] = []
    if document.throughput:
        panels.append(_by_subscribers)
    if document.latency:
        panels.append(_latency)
    if document.purge:
        panels.append(_purge)
    if len(document.drain) > 1:
        panels.append(_drain)
    for attribute, label in (("size", "bytes a message"), ("publishers", "publishers"), ("topics", "topics")):
        if len({getattr(row, attribute) for row in document.throughput}) > 1:
            panels.append(_curve(attribute, label))
    return panels


def _usual(row: Throughput, besides: str) -> bool:
    usual = {"publishers": 1, "topics": 1, "size": 100, "threads": 0, "subscribers": 1}
    return all(getattr(row, name) == value for name, value in usual.items() if name != besides)


def _by_subscribers(axes: Axes, document: Document) -> None:
    for algorithm in ("zkms", "original"):
        rows = [row for row in document.throughput if row.algorithm == algorithm and _usual(row, "subscribers")]
        rows.sort(key=lambda row: row.subscribers)
        counts, rates = [row.subscribers for row in rows], [row.messages_per_s for row in rows]
        axes.plot(counts, rates, "o-", color=COLOURS[algorithm], label=algorithm)
    axes.set(xscale="log", yscale="log", xlabel="subscribers", ylabel="messages/s", title="End to end, to every one")
    axes.legend()
    axes.grid(alpha=0.3)


def _latency(axes: Axes, document: Document) -> None:
    labels = [f"{row.algorithm}\n{row.subscribers} sub., {row.rate:g}/s" for row in document.latency]
    for offset, name in enumerate(("p50", "p99", "p99.9")):
        places = [i + (offset - 1) * 0.27 for i in range(len(labels))]
        axes.bar(
            places,
            [getattr(row, f"{name.replace('.', '')}_ms") for row in document.latency],
            0.25,
            label=name,
            alpha=1 - offset / 4,
        )
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set(yscale="log", ylabel="ms", title="Latency, publish to handler")
    axes.legend()


def _purge(axes: Axes, document: Document) -> None:
    names = [row.algorithm for row in document.purge]
    axes.bar(names, [row.znodes_per_s for row in document.purge], color=[COLOURS[name] for name in names])
    axes.set(yscale="log", ylabel="znodes/s", title="Purge of a dead queue")


def _drain(axes: Axes, document: Document) -> None:
    rows = sorted(document.drain, key=lambda row: row.backlog)
    axes.plot([row.backlog for row in rows], [row.messages_per_s for row in rows], "o-", color=COLOURS["zkms"])
    axes.set(xscale="log", ylim=(0, None), xlabel="messages waiting", ylabel="messages/s", title="Drain of a backlog")
    axes.grid(alpha=0.3)


def _curve(attribute: str, label: str) -> Panel:
    def panel(axes: Axes, document: Document) -> None:
        rows = [row for row in document.throughput if row.algorithm == "zkms" and _usual(row, attribute)]
        rows.sort(key=lambda row: float(getattr(row, attribute)))
        points = [getattr(row, attribute) for row in rows]
        axes.plot(points, [row.messages_per_s for row in rows], "o-", color=COLOURS["zkms"])
        axes.set(xscale="log", ylim=(0, None), xlabel=label, ylabel="messages/s", title=f"By {label}")
        axes.grid(alpha=0.3)

    return panel
