"""The report's plots as data for plotly.js; colours come from the page."""

from __future__ import annotations

import html
from typing import Any

from zkms_spark.analysis import Analysis, Rows

Figure = dict[str, Any]


def figures(analysis: Analysis) -> dict[str, Figure]:
    """Every plot by the id of its place on the page; those with nothing to show are left out."""
    per_second = 1.0 / analysis.step
    made = {
        "plot-throughput": _figure(
            [
                *_series(analysis.throughput, "topic", "published", " published", per_second),
                *_series(analysis.throughput, "topic", "delivered", " delivered", per_second, dash="dot"),
            ],
            {"yaxis": {"title": {"text": "messages/s"}, "rangemode": "tozero"}},
        ),
        "plot-latency": _figure(
            [
                *_series(analysis.latency, "topic", "p50", " p50", 1000.0, dash="dot"),
                *_series(analysis.latency, "topic", "p99", " p99", 1000.0),
            ],
            {"yaxis": {"title": {"text": "ms"}, "type": "log"}},
        ),
        "plot-lag": _figure(
            _series(analysis.lag, "sub", "waiting", "", 1.0),
            {"yaxis": {"title": {"text": "messages waiting"}, "rangemode": "tozero"}},
        ),
        "plot-nodes": _bars(analysis.nodes),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def _figure(data: list[dict[str, Any]], layout: dict[str, Any]) -> Figure | None:
    return {"data": data, "layout": layout} if data else None


def _series(rows: Rows, by: str, value: str, suffix: str, factor: float, dash: str = "solid") -> list[dict[str, Any]]:
    """A line for each of `by`; rows are in order of time."""
    lines: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row[by] or "?"
        line = lines.setdefault(
            name,
            {
                "type": "scatter",
                "mode": "lines+markers" if len(rows) < 400 else "lines",
                "name": html.escape(name + suffix),  # plotly reads names as its own kind of HTML
                "x": [],
                "y": [],
                "line": {"dash": dash, "width": 2},
                "marker": {"size": 4},
            },
        )
        if row[value] is not None:
            line["x"].append(round(row["step"] * 1000))
            line["y"].append(float(f"{row[value] * factor:.4g}"))
    return [line for line in lines.values() if line["x"]]


def _bars(nodes: Rows) -> Figure | None:
    shown = [node for node in nodes if node["p99"] is not None][:40]
    if not shown:
        return None
    names = [html.escape(node["node"]) for node in shown]
    bars = [
        {"type": "bar", "name": label, "x": names, "y": [float(f"{(node[key] or 0) * 1000:.4g}") for node in shown]}
        for key, label in (("p50", "p50"), ("p99", "p99"), ("slowest", "slowest"))
    ]
    return {"data": bars, "layout": {"xaxis": {"type": "category"}, "yaxis": {"title": {"text": "ms"}, "type": "log"}}}
