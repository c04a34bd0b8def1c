"""The report: an analysis as one HTML file that needs nothing else, neither a network nor another file.

Everything that comes from the trail (names, reasons) is escaped: a topic may be called anything.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from zkms_spark.analysis import SHOWN, Analysis, Rows
from zkms_spark.errors import AnalysisError
from zkms_spark.report.figures import figures
from zkms_spark.report.summary import doubts, headline, reasons, sentences
from zkms_spark.report.tables import TABLES, Column, Table, anchor
from zkms_spark.report.words import clock, count, number, span

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def render(analysis: Analysis) -> str:
    """The page."""
    plots = figures(analysis)
    body = "\n".join(
        [
            _verdict(analysis),
            _facts(analysis),
            _section("throughput", "Throughput", _plot("plot-throughput", plots), _table("topics", analysis)),
            _section("latency", "Latency", "<p class=faint>From publish to hand-over, corrected for the clocks.</p>",
                     _plot("plot-latency", plots)),
            _section("subscriptions", "Subscriptions and lag", _plot("plot-lag", plots),
                     *(_table(name, analysis) for name in ("subscriptions", "absent", "incidents", "retries"))),
            _section("keys", "Hot keys and storms", _table("hot_keys", analysis), _table("storms", analysis)),
            _section("nodes", "Nodes: staleness, clocks, lost lines", _plot("plot-nodes", plots),
                     _table("nodes", analysis), _table("holes", analysis)),
            _section("findings", "Findings of the audit", _table("findings", analysis)),
        ]
    )  # fmt: skip
    places = ("verdict", "throughput", "latency", "subscriptions", "keys", "nodes", "findings")
    menu = "".join(f"<li><a href=#{name}>{name.capitalize()}</a></li>" for name in places)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>zkms report: {html.escape(headline(analysis))}</title>
<link rel="icon" href="data:,">
<style>{_asset("style.css")}</style>
</head>
<body>
<header><h1>zkms report</h1><p class="faint">{html.escape(analysis.source)}</p></header>
<nav><ul>{menu}</ul></nav>
<main>
{body}
<footer class="faint">{_footer(analysis)}</footer>
</main>
<script type="application/json" id="figures">{_json(plots)}</script>
<script>{_plotly()}</script>
<script>{_asset("script.js")}</script>
</body>
</html>
"""


def _verdict(a: Analysis) -> str:
    why = "".join(f"<p>{html.escape(reason)}</p>" for reason in reasons(a))
    lines = "".join(
        f'<li><span class="pill {v.status}">{v.status}</span> '
        f"<span>{html.escape(v.guarantee)}{_link_to_findings(v.violations or v.undecided, v.violation)}</span>"
        f"{f'<span class=faint>{html.escape(v.reason)}</span>' if v.reason else ''}</li>"
        for v in a.verdicts
    )
    return (
        f'<section id="verdict"><div class="banner {a.overall}"><strong>{html.escape(headline(a))}</strong>{why}</div>'
        f'<ul class="guarantees">{lines}</ul></section>'
    )


def _link_to_findings(found: int, violation: str) -> str:
    return f' <a href="#{anchor("violation", violation)}">see</a>' if found else ""


def _facts(a: Analysis) -> str:
    seconds = max(a.ended - a.began, 1e-9)
    slowest = max((row["p99"] for row in a.topics if row["p99"] is not None), default=None)
    boxes = (
        (number(a.messages), "messages published"),
        (number(a.totals.get("delivered", 0)), "deliveries"),
        (number(a.messages / seconds) + "/s", "published on average"),
        (span(slowest), "p99 of the slowest topic"),
        (number(a.subscriptions_in_all), "subscriptions"),
        (number(len(a.nodes)), "nodes"),
    )
    cells = "".join(f"<div><b>{html.escape(value)}</b>{html.escape(label)}</div>" for value, label in boxes)
    doubtful = [f"Part of the trail is doubtful: {doubt}." for doubt in doubts(a)]
    told = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in [*doubtful, *sentences(a)])
    return f'<section id="summary"><h2>In short</h2><div class="figures">{cells}</div><ul>{told}</ul></section>'


def _section(name: str, title: str, *parts: str) -> str:
    content = "\n".join(part for part in parts if part) or '<p class="faint">Nothing in this trail.</p>'
    return f'<section id="{name}"><h2>{html.escape(title)}</h2>{content}</section>'


def _plot(name: str, plots: dict[str, Any]) -> str:
    return f'<div class="plot" id="{name}"></div>' if name in plots else ""


def _table(name: str, a: Analysis) -> str:
    table: Table = TABLES[name]
    rows: Rows = getattr(a, name)
    if not rows:
        return f'<p class="faint">{html.escape(table.empty)}</p>' if table.empty else ""
    head = "".join(
        f"<th{' class=number' if column.right else ''}>{html.escape(column.title)}</th>" for column in table.columns
    )
    seen: set[str] = set()
    body = "".join(_row(table.columns, row, table.anchor(row), seen) for row in rows)
    more = f'<p class="faint">The first {SHOWN} are shown.</p>' if len(rows) >= SHOWN else ""
    whole = f"<table id=table-{name}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<h3>{html.escape(table.title)}</h3><div class=table>{whole}</div>{more}"


def _row(columns: Sequence[Column], row: dict[str, Any], name: str | None, seen: set[str]) -> str:
    """A row has an id if it is the first of its name."""
    cells = "".join(f"<td{column.style}>{column.cell(row)}</td>" for column in columns)
    if name is None or name in seen:
        return f"<tr>{cells}</tr>"
    seen.add(name)
    return f'<tr id="{name}">{cells}</tr>'


def _footer(a: Analysis) -> str:
    took = sum(a.seconds.values())
    return html.escape(
        f"{count(a.events, 'event')} from {clock(a.began, day=True)} to {clock(a.ended, day=True)} UTC, one point of a "
        f"plot is {span(a.step)}. Analysed by Spark in {span(took)}. Times are UTC."
    )


def _json(value: Any) -> str:
    """JSON that no HTML parser mistakes for markup."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _asset(name: str) -> str:
    return resources.files("zkms_spark.report").joinpath("page", name).read_text(encoding="utf-8")


def _plotly() -> str:
    """plotly.js: packed beside us, as in the zip for a cluster, or from the installed plotly."""
    packed = resources.files("zkms_spark.report").joinpath("page", "plotly.min.js")
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise AnalysisError("the report needs plotly: `pip install 'zkms[spark]'`")
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
