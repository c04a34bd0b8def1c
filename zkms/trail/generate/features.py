"""Selectors, priorities and patterns for a generated trail: messages are left out, or overtaken, on purpose.

`paint` goes to `all`, and every second message of a frame to `reds`. Of `alarms` one in five is urgent: `desk` reads
once a second, and gets these first. `metrics.cpu` and `metrics.disk` go to two subscriptions to `metrics.*`: the queue
of `watch` was removed for a while, as a gap tells, and `store` gave up its oldest for a while, as a purge does.
Each is published by a producer with a name of its own, so that whatever else is generated stays as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zkms.trail.event import called
from zkms.trail.generate.cast import ALARMS, CPU, DISK, METRICS, PAINT, SHIFT
from zkms.trail.generate.scenario import DURABLE, NONE, REASONS, Scenario

PATTERN = "metrics.*"
SUBSCRIPTIONS = ("all", "reds", "desk", called("watch", PATTERN), called("store", PATTERN))
ALL, REDS, DESK, WATCH, STORE = range(5)
TOPICS_OF = {ALL: PAINT, REDS: PAINT, DESK: ALARMS, WATCH: METRICS, STORE: METRICS}
LISTS = ([ALL], [ALL, REDS], [DESK], [WATCH, STORE])
URGENT = 5
SHARE = 0.03
"""Of all events, for each of the three."""


class Features:
    """Adds the rows of one shift to a scenario."""

    def __init__(self, scenario: Scenario, events: int) -> None:
        self._scenario = scenario
        self._shift = scenario.shift
        (self._rng,) = scenario.shift.rng.spawn(1)  # which takes nothing from the others
        self._sub = len(scenario.subs)
        self._list = len(scenario.lists)
        self._reader = self._shift.durable_owner["audit"]
        scenario.subs += SUBSCRIPTIONS
        scenario.lists += [[SUBSCRIPTIONS[sub] for sub in subs] for subs in LISTS]
        when = self._shift.begin + 0.5
        for sub, topic in TOPICS_OF.items():
            scenario.add("subscribed", when, topic=topic, zxid=0, **self._read_by(sub))
        self._paint(int(events * SHARE / 6))
        self._alarms(int(events * SHARE / 3))
        self._metrics(int(events * SHARE / 5))

    def _read_by(self, sub: int) -> dict[str, Any]:
        return {"node": self._reader, "sub": self._sub + sub, "kind": DURABLE, "epoch": self._shift.epoch}

    def _frames(self, name: str, count: int, n: np.ndarray | int = 1) -> tuple[np.ndarray, dict[str, Any]]:
        """When each is published, and what its rows have in common."""
        rng, shift = self._rng, self._shift
        time = np.sort(rng.uniform(shift.begin + 5, shift.begin + SHIFT - 100, max(4, count)))
        lengths = np.broadcast_to(np.asarray(n), time.shape)
        self._scenario.producers.append(f"{name}-{shift.number}")
        about = {
            "producer": len(self._scenario.producers) - 1,
            "seq": np.cumsum(lengths) - lengths + 1,
            "at": time + shift.skew[shift.leader],
            "size": lengths * 100,
        }
        return time, about

    def _publish(self, time: np.ndarray, subs: int, **fields: Any) -> None:
        took = self._rng.exponential(0.002, len(time)) + 0.001
        node = self._shift.leader
        self._scenario.add("published", time + took, node=node, subs=self._list + subs, zxid=0, **fields)

    def _deliver(self, sub: int, arrived: np.ndarray, **fields: Any) -> None:
        mine = fields | self._read_by(sub)
        self._scenario.add("delivered", arrived, attempt=1, **mine)
        acked = {name: value for name, value in mine.items() if name not in ("at", "size")}
        self._scenario.add("acked", arrived + self._rng.exponential(0.002, len(arrived)) + 1e-6, zxid=0, **acked)

    def _in_order(self, time: np.ndarray) -> np.ndarray:
        arrived = np.maximum.accumulate(time + self._rng.exponential(0.004, len(time)) + 0.001)
        in_order: np.ndarray = arrived + np.arange(len(time)) * 1e-6
        return in_order

    def _paint(self, count: int) -> None:
        """Frames of an even number of messages: the first, the third and so on are for both."""
        pairs = self._rng.integers(1, 4, max(4, count))
        time, about = self._frames("painter", count, 2 * pairs)
        halves = {"topic": PAINT, **about, "n": pairs, "stride": 2}
        self._publish(time, 1, **halves)
        self._publish(time, 0, **{**halves, "seq": about["seq"] + 1})
        self._deliver(ALL, self._in_order(time), topic=PAINT, **about, n=2 * pairs, role=2)
        # What is planted is a range: only where half of a frame is one.
        self._deliver(REDS, self._in_order(time), **halves, role=np.where(pairs == 1, 2, NONE))

    def _alarms(self, count: int) -> None:
        time, about = self._frames("siren", count)
        priority = np.where(self._rng.uniform(size=len(time)) < 0.2, URGENT, NONE)
        about |= {"topic": ALARMS, "n": 1, "priority": priority}
        self._publish(time, 2, **about)
        look = np.ceil(time + 0.01)
        order = np.lexsort((time, -priority, look))
        arrived = np.empty(len(time))
        arrived[order] = look[order] + np.arange(len(time)) * 1e-6
        self._deliver(DESK, arrived, **about, role=2)

    def _metrics(self, count: int) -> None:
        shift, rng = self._shift, self._rng
        time, about = self._frames("meter", count)
        about |= {"topic": rng.choice([CPU, DISK], len(time)), "n": 1}
        self._publish(time, 3, **about)
        left_out = (time >= shift.full_from) & (time < shift.full_until)
        some = {name: values[~left_out] if np.ndim(values) else values for name, values in about.items()}
        before = time < shift.full_from
        for sub in (WATCH, STORE):
            arrived = self._in_order(time)[~left_out]
            self._deliver(sub, arrived, **some)
            told: dict[str, Any] = {"topic": METRICS, "sub": self._sub + sub}
            late = float(arrived[: int(before.sum())].max(initial=0.0))
            if sub == WATCH:
                when = max(shift.full_until, late) + 1e-7
                removed = REASONS.index("the queue was removed by somebody else")
                self._scenario.add("gap", when, node=self._reader, kind=DURABLE, reason=removed, **told)
            elif left_out.any():
                dropped = REASONS.index("dropped: more than 100 messages were waiting")
                when = max(shift.full_until, late) + 1e-7
                n = int(left_out.sum())
                self._scenario.add("purged", when, node=shift.leader, n=n, reason=dropped, **told)
