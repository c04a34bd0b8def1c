"""Violations for a generated trail: each changes the rows of one message, and is remembered."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from zkms.errors import InvalidArgument
from zkms.trail.event import VIOLATIONS
from zkms.trail.generate.cast import NODES, TOPICS
from zkms.trail.generate.scenario import CODE, Columns, Scenario

BETWEEN = 5e-7
"""Seconds: later than a delivery, and before the next one."""
UNCERTAIN = 12.0
"""Seconds before and after lines were lost, in which nothing is planted: no audit could be sure of it."""
LIVE_ROLE, DURABLE_ROLE, GROUP_ROLE, DELAYED_ROLE, EXPIRING_ROLE = range(1, 6)


class Planted(msgspec.Struct, frozen=True):
    """One violation: the messages it is about, and where."""

    violation: str
    topic: str
    sub: str
    producer: str
    seq: int
    n: int
    node: str


def parse_faults(text: str) -> dict[str, int]:
    """`lost=3,early=1`, or `all=2`; `InvalidArgument` if it names what nobody knows."""
    counts: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, number = part.partition("=")
        if name not in (*VIOLATIONS, "all"):
            raise InvalidArgument(f"--faults: {name!r} is none of {', '.join(VIOLATIONS)}, all")
        if not number.isascii() or not number.isdigit():
            raise InvalidArgument(f"--faults: write {name}=3, not {part!r}")
        for each in VIOLATIONS if name == "all" else [name]:
            counts[each] = int(number)
    return counts


class Planter:
    """Plants into one scenario's rows."""

    def __init__(self, scenario: Scenario, rows: Columns) -> None:
        self.rows = rows
        self.planted: list[Planted] = []
        self._scenario = scenario
        self._rng = scenario.shift.rng
        self._used = np.zeros(len(rows["time"]), bool)
        self._dropped = np.zeros(len(rows["time"]), bool)
        self._added: list[Columns] = []

    def plant(self, violation: str) -> None:
        """One more of this kind."""
        kinds: dict[str, Callable[[], int]] = {
            "lost": partial(self._lose, DURABLE_ROLE, GROUP_ROLE),
            "missed": partial(self._lose, LIVE_ROLE),
            "duplicated": self._duplicate,
            "out_of_order": self._disorder,
            "early": self._hasten,
            "after_expiry": self._delay,
            "not_owner": self._usurp,
        }
        row = kinds[violation]()
        rows, shift = self.rows, self._scenario.shift
        self.planted.append(
            Planted(
                violation,
                TOPICS[rows["topic"][row]],
                self._scenario.subs[rows["sub"][row]],
                self._scenario.producers[rows["producer"][row]],
                int(rows["seq"][row]),
                int(rows["n"][row]),
                shift.nodes[rows["node"][row]],
            )
        )

    def finish(self) -> Columns:
        """The rows as they are now."""
        kept = {name: values[~self._dropped] for name, values in self.rows.items()}
        if not self._added:
            return kept
        return {name: np.concatenate([kept[name], *(chunk[name] for chunk in self._added)]) for name in kept}

    # -- choosing ------------------------------------------------------------------------------------------------

    def _candidates(self, *roles: int) -> np.ndarray:
        """Deliveries in these roles where and when nothing is missing from the trail."""
        rows, shift = self.rows, self._scenario.shift
        steady = np.setdiff1d(shift.steady, [shift.slow])
        chosen = np.isin(rows["role"], roles) & (rows["event"] == CODE["delivered"]) & ~self._used
        complete = np.isin(rows["producer"], steady) | (rows["producer"] >= NODES)  # those with names of their own
        chosen &= np.isin(rows["node"], steady) & complete
        for moment in (shift.lossy_at, shift.kill_at):
            chosen &= np.abs(rows["time"] - moment) > UNCERTAIN
        return np.flatnonzero(chosen)

    def _choose(self, found: np.ndarray) -> int:
        if not len(found):
            raise InvalidArgument("--faults: too many for so few events; give more --events")
        row = int(self._rng.choice(found))
        self._used |= (self.rows["producer"] == self.rows["producer"][row]) & (
            self.rows["seq"] == self.rows["seq"][row]
        )
        return row

    def _rows_about(self, row: int, *events: str, anyone: bool = False) -> np.ndarray:
        """Rows about the same messages, of the same subscription unless `anyone`."""
        rows = self.rows
        same = (rows["producer"] == rows["producer"][row]) & (rows["seq"] == rows["seq"][row])
        if not anyone:
            same &= rows["sub"] == rows["sub"][row]
        return np.flatnonzero(same & np.isin(rows["event"], [CODE[event] for event in events]))

    # -- violations ----------------------------------------------------------------------------------------------

    def _lose(self, *roles: int) -> int:
        row = self._choose(self._candidates(*roles))
        self._dropped[self._rows_about(row, "delivered", "acked")] = True
        return row

    def _duplicate(self) -> int:
        role = int(self._rng.choice([LIVE_ROLE, DURABLE_ROLE, GROUP_ROLE]))
        row = self._choose(self._candidates(role))
        again = {name: values[[row]].copy() for name, values in self.rows.items()}
        again["time"] += BETWEEN
        self._added.append(again)
        return row

    def _disorder(self) -> int:
        """A message of a key comes after the next one of that key and producer."""
        rows = self.rows
        found = self._candidates(GROUP_ROLE)
        order = found[np.lexsort((rows["seq"][found], rows["key"][found], rows["producer"][found]))]
        pairs = (rows["producer"][order[:-1]] == rows["producer"][order[1:]]) & (
            rows["key"][order[:-1]] == rows["key"][order[1:]]
        )
        first = self._choose(order[:-1][pairs])
        second = int(order[np.flatnonzero(order == first)[0] + 1])
        self._used[self._rows_about(second, "delivered", "acked")] = True
        rows["time"][first] = rows["time"][second] + BETWEEN
        rows["time"][self._rows_about(first, "acked")] = rows["time"][first] + 1e-4
        return first

    def _hasten(self) -> int:
        row = self._choose(self._candidates(DELAYED_ROLE))
        self.rows["time"][self._rows_about(row, "due", "delivered", "acked", anyone=True)] -= 10.0
        return row

    def _delay(self) -> int:
        row = self._choose(self._candidates(EXPIRING_ROLE))
        self.rows["time"][self._rows_about(row, "delivered", "acked")] += 65.0
        return row

    def _usurp(self) -> int:
        """Somebody acks who had owned it before, in a transaction that should not have been let through."""
        rows, shift = self.rows, self._scenario.shift
        row = self._choose(self._candidates(DURABLE_ROLE, GROUP_ROLE))
        (acked,) = self._rows_about(row, "acked")
        others = np.setdiff1d(shift.steady, [rows["node"][row], shift.slow])
        rows["node"][acked] = self._rng.choice(others)
        rows["epoch"][acked] -= 1
        return int(acked)
