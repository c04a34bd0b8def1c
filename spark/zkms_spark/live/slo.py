"""Service level objectives, and alerts where they are not met."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zkms_spark.live.window import Window, iso
from zkms_spark.report.words import count, number, span

Alert = dict[str, Any]
"""id, kind, text, and what it is about: topic, sub, window, value, limit. Made of what JSON has."""


@dataclass(frozen=True)
class Slo:
    """The limits for each subscription and window; None: no limit."""

    p99: float | None = None
    """Seconds from publish to delivery, for 99 of 100 messages."""
    lag: int | None = None
    """Messages waiting at the end."""
    gaps: int | None = 0
    """Gap events."""

    def alerts(self, window: Window) -> list[Alert]:
        """Return the alerts of a closed window."""
        found = []
        for row in window.subscriptions():
            name = f"{row['topic']}: {row['sub']}"
            if self.p99 is not None and row["p99"] is not None and row["p99"] > self.p99:
                text = f"{name} has a p99 of {span(row['p99'])}, more than {span(self.p99)}"
                found.append(alert("p99", text, window, row, row["p99"], self.p99))
            if self.lag is not None and (row["waiting"] or 0) > self.lag:
                text = f"{name} has {number(row['waiting'])} messages waiting, more than {number(self.lag)}"
                found.append(alert("lag", text, window, row, row["waiting"], self.lag))
        return found + self.gaps_alone(window)

    def gaps_alone(self, window: Window) -> list[Alert]:
        """The gaps in it: all that can be said of what came for a window after it was closed."""
        return [
            alert("gap", _gap_text(row, self.gaps), window, row, row["gaps"], self.gaps)
            for row in window.subscriptions()
            if self.gaps is not None and row["gaps"] > self.gaps
        ]


def _gap_text(row: dict[str, Any], allowed: int | None) -> str:
    events = count(row["gaps"], "gap event")
    more = f", {allowed} allowed" if allowed else ""
    return f"{row['topic']}: {row['sub']} had {events}{more}: messages may have been missed"


def alert(kind: str, text: str, window: Window, row: dict[str, Any], value: float, limit: float) -> Alert:
    """One alert about a subscription in a window."""
    return {
        "id": identity(kind, row["topic"], row["sub"], window.step, window.batch),
        "kind": kind,
        "text": f"{iso(window.step)} {text}",
        "topic": row["topic"],
        "sub": row["sub"],
        "window": iso(window.step),
        "value": value,
        "limit": limit,
    }


def violations(findings: Iterable[dict[str, Any]]) -> list[Alert]:
    """An alert for each kind of violation and subscription that an audit has found; the same again has the same id."""
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in findings:
        if row["verdict"] == "violation":
            grouped.setdefault((row["violation"], row["topic"], row["sub"]), []).append(row)
    found = []
    for (violation, topic, sub), rows in grouped.items():
        messages = sum(row["messages"] for row in rows)
        found.append(
            {
                "id": identity("audit", violation, topic, sub, messages),
                "kind": "audit",
                "text": f"{topic}: {sub}: {count(messages, 'message')} {violation}, {rows[0]['evidence']}",
                "violation": violation,
                "topic": topic,
                "sub": sub,
                "value": messages,
                "limit": 0,
            }
        )
    return found


def identity(*parts: object) -> str:
    """An id that is the same whenever the alert is."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:24]
