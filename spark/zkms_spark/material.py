"""Results that several jobs need: computed when first needed, and cached until all jobs are done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.audit import verdict
from zkms_spark.audit.audit import Audit, audit
from zkms_spark.audit.ground import Ground, explore
from zkms_spark.audit.survey import Survey
from zkms_spark.effort import steadily
from zkms_spark.errors import NoTrail
from zkms_spark.traffic import hotkeys, lag, traffic


class Material:
    """A trail with its cached results."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self._cubes: dict[float, DataFrame] = {}
        self._lags: dict[float, DataFrame] = {}
        self._kept: list[DataFrame] = []

    @property
    def spark(self) -> SparkSession:
        """The session of the trail."""
        return self.ground.trail.sparkSession

    @cached_property
    def audit(self) -> Audit:
        """The audit of the trail."""
        g = self.ground
        found = audit(g.trail, g.recorded, g.known, g.holes, g.margin, g.notes)
        return replace(found, findings=self._keep(found.findings))

    @cached_property
    def verdicts(self) -> list[verdict.Verdict]:
        """The verdict on each guarantee."""
        counted = self.audit.findings.groupBy("violation", "verdict").agg(
            F.count("*").alias("rows"), F.sum("messages").alias("sum")
        )
        counts = {(row.violation, row.verdict): (row.rows, row.sum) for row in counted.collect()}
        lost = [hole for hole in self.ground.holes if not hole.killed]
        reason = ""
        if lost:
            lines, names = sum(hole.lines or 0 for hole in lost), _names({hole.node for hole in lost})
            reason = f"{lines:,} lines of {names} are missing, and what they told with them"
        return verdict.judge(counts, _tried(self.ground.known), reason)

    def cube(self, step: float) -> DataFrame:
        """All traffic, added up by steps of so many seconds."""
        if step not in self._cubes:
            self._cubes[step] = traffic.cube(self.ground.trail, step).localCheckpoint()
        return self._cubes[step]

    def lag(self, step: float) -> DataFrame:
        """The lag at the end of each step."""
        if step not in self._lags:
            waiting = lag.lag(self.ground.trail, self.cube(step), step, self.ground.notes)
            self._lags[step] = self._keep(waiting)
        return self._lags[step]

    @cached_property
    def keys(self) -> DataFrame:
        """All keys."""
        return self._keep(hotkeys.keys(self.ground.trail))

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.cache())
        return frame

    def close(self) -> None:
        """Free the cached results."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()


@contextmanager
def material(trail: DataFrame, source: str) -> Iterator[Material]:
    """Of this trail, for a block; `NoTrail` if there is nothing in it."""
    with steadily(trail):
        made = Material(explore(trail))
        if made.ground.known.events == 0:
            raise NoTrail(f"the trail in {source} is empty: no event was recorded")
        try:
            yield made
        finally:
            made.close()


def _tried(known: Survey) -> set[str]:
    """Return the violations that the trail could show."""
    tried = {"duplicated", "out_of_order"}
    tried |= {"missed"} if known.has_live else set()
    tried |= {"lost"} if known.has_kept else set()
    tried |= {"early"} if known.has_due else set()
    tried |= {"after_expiry"} if known.has_expiry else set()
    return tried | ({"not_owner"} if known.has_epochs else set())


def _names(nodes: set[str]) -> str:
    names = sorted(nodes)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
