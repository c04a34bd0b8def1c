"""The report's tables: which columns, under which titles, and where a cell leads to."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from zkms_spark.report.words import DASH, clock, number, size, span

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """How one value is shown; `leads_to` names the table whose row of that name it links to."""

    title: str
    key: str
    show: Callable[[Any], str] = str
    right: bool = False
    long: bool = False
    leads_to: str | None = None

    @property
    def style(self) -> str:
        """Attributes of the cell."""
        return " class=number" if self.right else " class=long" if self.long else " class=name"

    def cell(self, row: Row) -> str:
        """The cell's HTML."""
        value = row.get(self.key)
        if value is None:
            return DASH
        text = html.escape(self.show(value))
        if self.leads_to is None:
            return text
        names = [row.get("topic") or "", value] if self.leads_to == "sub" else [value]
        return f'<a href="#{anchor(self.leads_to, *names)}" title="{text}">{text}</a>'


@dataclass(frozen=True)
class Table:
    """`named` says which fields name a row, so that others can lead to it."""

    title: str
    columns: Sequence[Column]
    empty: str = ""
    named: tuple[str, ...] = ()
    kind: str = field(default="")

    def anchor(self, row: Row) -> str | None:
        """The row's id."""
        return anchor(self.kind, *(row[name] or "" for name in self.named)) if self.named else None


def anchor(kind: str, *names: str) -> str:
    """An id that is safe in HTML and in a link, whatever the names are."""
    return f"{kind}-{hashlib.sha256(chr(0).join(names).encode()).hexdigest()[:12]}"


def _yes(value: Any) -> str:
    return "yes" if value else "no"


def _key(value: int) -> str:
    return f"{value:016x}"


_TOPIC = Column("topic", "topic", leads_to="topic")
_SUB = Column("subscription", "sub", leads_to="sub")
_NODE = Column("node", "node", leads_to="node")


def _n(title: str, key: str) -> Column:
    return Column(title, key, number, right=True)


def _s(title: str, key: str) -> Column:
    return Column(title, key, span, right=True)


_LATENCIES = [_s(name, name) for name in ("p50", "p90", "p99", "slowest")]

TABLES = {
    "findings": Table(
        "What breaks a guarantee, or cannot be decided",
        [
            Column("violation", "violation"), Column("verdict", "verdict"), _TOPIC, _SUB,
            Column("producer", "producer"), _n("from", "first"), _n("to", "last"), _n("messages", "messages"),
            Column("at", "t", clock), _NODE,
            Column("evidence", "evidence", long=True),
        ],
        "None: no violation was found.", ("violation",), "violation",
    ),
    "absent": Table(
        "Not delivered, and where it went",
        [_TOPIC, _SUB, Column("kind", "kind"), Column("fate", "fate"), Column("by", "what"), _n("messages", "messages"),
         Column("reason", "text", long=True)],
    ),
    "topics": Table(
        "Topics",
        [Column("topic", "topic"), _n("published", "published"), _n("copies", "copies"), _n("delivered", "delivered"),
         Column("bytes", "bytes", size, right=True), *_LATENCIES],
        named=("topic",), kind="topic",
    ),
    "subscriptions": Table(
        "Subscriptions, the slowest first",
        [Column("subscription", "sub"), _TOPIC, _n("delivered", "messages"), _s("p50", "p50"), _s("p99", "p99"),
         _s("slowest", "slowest"), _n("most waiting", "most"), Column("when", "most_at", clock),
         _n("at the end", "at_end"), Column("slow", "slow", _yes)],
        named=("topic", "sub"), kind="sub",
    ),
    "incidents": Table(
        "Gaps and purges",
        [Column("event", "event"), _TOPIC, _SUB, Column("told by", "node", leads_to="node"), _n("times", "times"),
         _n("messages", "messages"), Column("last at", "last_at", clock), Column("reason", "reason", long=True)],
        "No gaps, no purges.",
    ),
    "retries": Table(
        "Retries and dead letters",
        [_TOPIC, _SUB, _n("delivered", "delivered"), _n("redelivered", "redelivered"), _n("given back", "nacked"),
         _n("expired", "expired"), _n("dead", "dead")],
        "No retries, no dead letters.",
    ),
    "hot_keys": Table(
        "Keys with the most messages (hashes, as in the trail)",
        [_TOPIC, Column("key", "key", _key), _n("messages", "messages"), _n("most in 10 s", "burst"),
         Column("then", "burst_at", clock)],
    ),
    "storms": Table(
        "Storms: one key, again and again",
        [_TOPIC, Column("key", "key", _key), _n("within 10 s", "burst"), Column("at", "burst_at", clock)],
        "No storms.",
    ),
    "nodes": Table(
        "Nodes",
        [Column("node", "node"), Column("host", "host"), _n("live deliveries", "messages"), _s("p50", "p50"),
         _s("p99", "p99"), _s("stalest", "slowest"), _s("cut off", "seconds"), _n("sessions lost", "expired"),
         _n("gaps", "gaps"), _s("clock ahead", "offset"), _s("within", "error"),
         Column("ended unclean", "killed", _yes), _n("lines lost", "lost_lines")],
        named=("node",), kind="node",
    ),
    "holes": Table(
        "Missing lines of the trail",
        [_NODE, _n("lines", "lines"), Column("since", "since", clock), Column("until", "until", clock),
         Column("reason", "reason", long=True)],
        "No line of the trail is missing.",
    ),
}  # fmt: skip
