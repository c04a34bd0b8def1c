"""Writes realistic trails with known violations: as processes would leave them, or as an export would.

The same seed gives the same trail. Shifts of eight nodes follow one another; each is made, written and forgotten, so
memory does not grow with the number of events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from zkms.errors import InvalidArgument
from zkms.trail import line_count
from zkms.trail.event import FROM_OPENED, OPEN_SUFFIX, SUFFIX, VERSION
from zkms.trail.export.columns import directory, parquet_writer, write
from zkms.trail.generate.assembly import assemble
from zkms.trail.generate.cast import Shift
from zkms.trail.generate.features import Features
from zkms.trail.generate.planting import Planted, Planter
from zkms.trail.generate.scenario import Scenario

PER_SHIFT = 250_000
LEAST = 1_000
PLANTED = "planted.json"


class Generated(msgspec.Struct):
    """What was written."""

    events: int
    seed: int
    shifts: int
    skew: float
    violations: list[Planted]


@dataclass
class Generator:
    """Makes one trail; with `features`, selectors, priorities and patterns too. `progress` hears of what is written."""

    events: int
    out: str | Path
    _: KW_ONLY
    faults: dict[str, int] | None = None
    seed: int = 0
    skew: float = 0.2
    features: bool = False
    parquet: bool = False
    progress: Callable[[int], None] = lambda _count: None

    def __post_init__(self) -> None:
        if self.events < LEAST:
            raise InvalidArgument(f"--events: at least {LEAST:,}, for all that belongs to a trail")
        self._out = Path(self.out)
        self._shifts = max(1, round(self.events / PER_SHIFT))
        self._faults = self._assign(self.faults or {})

    def _assign(self, faults: dict[str, int]) -> list[list[str]]:
        """Which violations each shift gets."""
        wanted = [name for name, count in faults.items() for _ in range(count)]
        rng = np.random.default_rng([self.seed, 2**32 - 1])
        assigned: list[list[str]] = [[] for _ in range(self._shifts)]
        for name, place in zip(wanted, rng.permutation(len(wanted)), strict=True):
            assigned[int(place) % self._shifts].append(name)
        return assigned

    def run(self) -> Generated:
        """Write all of it; refuses a directory that holds something already."""
        try:
            self._out.mkdir(parents=True, exist_ok=True)
            if any(self._out.iterdir()):
                raise InvalidArgument(f"{str(self._out)!r} is not empty: give a new directory")
            done = Generated(0, self.seed, self._shifts, self.skew, [])
            for table, number, planted in self._tables():
                (self._write_parquet if self.parquet else self._write_lines)(table, number)
                done.events += len(table)
                done.violations += planted
                self.progress(len(table))
            (self._out / PLANTED).write_bytes(msgspec.json.format(msgspec.json.encode(done)))
        except OSError as error:
            raise InvalidArgument(f"cannot write to {str(self._out)!r}: {error.strerror or error}") from error
        return done

    def _tables(self) -> Iterator[tuple[pa.Table, int, list[Planted]]]:
        for number in range(self._shifts):
            shift = Shift(number, np.random.default_rng([self.seed, number]), self.skew)
            scenario = Scenario(shift, self.events // self._shifts)
            if self.features:
                Features(scenario, self.events // self._shifts)
            planter = Planter(scenario, scenario.rows())
            for violation in self._faults[number]:
                planter.plant(violation)
            yield assemble(scenario, planter.finish()), number, planter.planted

    def _write_parquet(self, table: pa.Table, number: int) -> None:
        hours = pc.cast(pc.floor(pc.divide(table["t"], 3600.0)), pa.int64())
        for hour in pc.unique(hours).to_pylist():
            folder = self._out / directory(hour)
            folder.mkdir(parents=True, exist_ok=True)
            with parquet_writer(folder / f"generated-{self.seed}-{number:06d}.parquet", table.schema) as file:
                write(table.filter(pc.equal(hours, hour)), file)

    def _write_lines(self, table: pa.Table, _number: int) -> None:
        for source in pc.unique(table["source"]).to_pylist():
            rows = table.filter(pc.equal(table["source"], source)).to_pylist()
            path = self._out / f"{source}{SUFFIX}"
            if rows[-1]["reason"] == "unclean":  # killed: the last line is what an export concludes
                last = rows.pop()
                count = rows[-1]["i"] + last["n"]
                path = path.with_name(path.name + OPEN_SUFFIX)
                (self._out / f"{source.rpartition('-')[0]}{line_count.SUFFIX}").write_bytes(
                    line_count.pack(count, last["t"])
                )
            path.write_bytes(b"".join(_line(row) for row in rows))


def _line(row: dict[str, object]) -> bytes:
    fields = {name: value for name, value in row.items() if value is not None and name != "source"}
    if row["event"] == "opened":
        fields["v"] = VERSION
    else:
        fields = {name: value for name, value in fields.items() if name not in FROM_OPENED}
    if not fields["i"]:
        del fields["i"]
    return msgspec.json.encode(fields) + b"\n"
