"""The progress of the live job: one JSON file, written atomically after the windows of a batch.

Windows are closed and alerts are decided here, once each: what a killed job had not written down yet is decided again
by the next one, from the same figures. Alerts wait here until they have been sent, so that none is lost by a kill; one
may be sent twice then, with the same id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from zkms_spark.live.slo import Alert
from zkms_spark.live.window import write_whole

PENDING = 1000
"""Alerts that wait to be sent, at the most: past that the oldest are dropped, and counted."""
REMEMBERED = 10_000
"""Findings of audits that are not told again."""


@dataclass
class FollowProgress:
    """The state after `batch`."""

    trail: str
    seconds: float
    batch: int = -1
    newest: float = 0.0
    """The latest time in the trail."""
    closed: float = 0.0
    """Windows that begin before this are closed."""
    events: int = 0
    """Rows of the trail so far."""
    late: int = 0
    """Cells that came for a closed window: they count, but alerts had been decided."""
    waiting: list[list[Any]] = field(default_factory=list)
    """[topic, sub, messages, step of the last change] at the end of the closed windows."""
    alerts: list[Alert] = field(default_factory=list)
    """Those that still have to be sent, each with `to`: where."""
    raised: int = 0
    dropped: int = 0
    """Alerts that could not be sent in time."""
    told: list[str] = field(default_factory=list)
    """Ids of what an audit has found before."""

    def carry(self, grown: Mapping[tuple[str, str], int], step: float) -> dict[tuple[str, str], int]:
        """Add what queues grew by, and return what waits in each of these; never less than nothing."""
        known = {(row[0], row[1]): row for row in self.waiting}
        for pair, change in grown.items():
            row = known.setdefault(pair, [*pair, 0, step])
            row[2] += change
            row[3] = max(row[3], step)
        self.waiting = [row for row in known.values() if row[2]]
        return {pair: max(0, known[pair][2]) for pair in grown}

    def forget(self, before: float) -> None:
        """Drop queues that nothing has happened to for so long."""
        self.waiting = [row for row in self.waiting if row[3] >= before]

    def raise_alerts(self, alerts: Iterable[Alert], to: list[str]) -> None:
        """Add these to the pending alerts."""
        fresh = [{**alert, "to": list(to)} for alert in alerts]
        self.raised += len(fresh)
        waiting = self.alerts + fresh
        self.dropped += max(0, len(waiting) - PENDING)
        self.alerts = waiting[-PENDING:]

    def unknown(self, alerts: Iterable[Alert]) -> list[Alert]:
        """Return the alerts that are new, and remember them."""
        before = set(self.told)
        fresh = [alert for alert in alerts if alert["id"] not in before]
        self.told = [*self.told, *(alert["id"] for alert in fresh)][-REMEMBERED:]
        return fresh

    def sent(self, where: str, ids: set[str]) -> None:
        """These need not be sent there again."""
        for alert in self.alerts:
            if alert["id"] in ids and where in alert["to"]:
                alert["to"].remove(where)
        self.alerts = [alert for alert in self.alerts if alert["to"]]

    def save(self, path: Path) -> None:
        """Write it atomically."""
        write_whole(path, asdict(self))


def load(path: Path, trail: str, seconds: float) -> FollowProgress:
    """Return the saved progress, or a new one."""
    if not path.exists():
        return FollowProgress(trail, seconds)
    return FollowProgress(**json.loads(path.read_text(encoding="utf-8")))
