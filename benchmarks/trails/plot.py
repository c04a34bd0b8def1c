"""The results as a picture."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.plot import OURS
from benchmarks.trails.page import LEAST_END_TO_END, LEAST_PUBLISH, work_cpu
from benchmarks.trails.results import Recorder, Results, Scale, Speed

GREYS = ("#8b949e", "#d29922")


def save(results: Results, file: Path) -> None:
    """Write it: a panel for each part that has something to show."""
    from matplotlib.figure import Figure

    panels: list[Callable[[Any], None]] = []
    if results.speed:
        panels.append(partial(_speed, results.speed))
    if results.scale:
        panels.append(partial(_scale, results.scale))
    if results.recorder:
        panels.append(partial(_recorder, results.recorder))
    if not panels:
        return
    picture = Figure(figsize=(5.5 * len(panels), 4), layout="constrained")
    for axes, draw in zip(picture.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
        draw(axes)
    picture.savefig(file, dpi=120)


def _speed(part: Speed, axes: Any) -> None:
    rows = sorted(part.outcomes, key=work_cpu)
    colours = [OURS if "jobs" in row.name else GREYS["DuckDB" in row.name] for row in rows]
    bars = axes.barh([row.name.replace(", ", "\n") for row in rows], [work_cpu(row) for row in rows], color=colours)
    axes.bar_label(bars, [f" {work_cpu(row):,.0f} s" for row in rows])
    axes.set(xlabel="seconds of CPU", title=f"four questions, {part.events / 1e6:,.0f} million events")
    axes.margins(x=0.2)


def _scale(part: Scale, axes: Any) -> None:
    millions = [events / 1e6 for events in part.events]
    axes.plot(millions, [outcome.cpu for outcome in part.outcomes], "o-", color=OURS, label="CPU")
    axes.plot(millions, [outcome.seconds for outcome in part.outcomes], "o--", color=GREYS[0], label="on the clock")
    axes.set(xlabel="million events", ylabel="seconds", title="all jobs", xlim=(0, None), ylim=(0, None))
    axes.legend()


def _recorder(part: Recorder, axes: Any) -> None:
    axes.boxplot([part.publish, part.end_to_end], tick_labels=["publish", "end to end"], showfliers=False)
    for place, least in ((1, LEAST_PUBLISH), (2, LEAST_END_TO_END)):
        axes.plot([place - 0.3, place + 0.3], [least, least], color="#cf222e", label="required" if place == 1 else None)
    axes.set(
        ylabel="throughput with a trail / without", title=f"{part.subscribers} subscribers, {len(part.publish)} rounds"
    )
    axes.legend(loc="lower right")
