"""The comparison as a picture: bars, a panel for each number of subscribers."""

from __future__ import annotations

from pathlib import Path

from benchmarks.comparison import WAYS, Comparison

OURS = "#1f6feb"
PEER = {1: "#d29922", 256: "#8b949e"}


def save(comparison: Comparison, file: Path) -> None:
    """Write it."""
    from matplotlib.figure import Figure

    counts = sorted({figure.subscribers for figure in comparison.figures}) or [1]
    picture = Figure(figsize=(6.5 * len(counts), 4.5), layout="constrained")
    for axes, count in zip(picture.subplots(1, len(counts), squeeze=False).flat, counts, strict=True):
        rows = [figure for figure in comparison.figures if figure.subscribers == count]
        rows.sort(key=lambda figure: figure.messages_per_s)
        labels = [row.peer if row.peer == "zkms" else f"{row.peer}\n{WAYS[row.pack]}" for row in rows]
        colours = [OURS if row.peer == "zkms" else PEER[row.pack] for row in rows]
        bars = axes.barh(labels, [row.messages_per_s for row in rows], color=colours)
        axes.bar_label(bars, [f" {row.messages_per_s:,.0f}" for row in rows], fontsize=8)
        axes.set(xscale="log", xlabel="messages/s, end to end", title=f"{count} subscriber{'s' * (count > 1)}")
        axes.margins(x=0.25)
        axes.tick_params(axis="y", labelsize=8)
    if comparison.others:
        picture.suptitle(comparison.others, fontsize=9)
    picture.savefig(file, dpi=120)
