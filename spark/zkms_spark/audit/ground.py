"""The basis of every job: the trail's processes, its missing lines, and its times by one clock."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from zkms_spark.audit import skew, survey
from zkms_spark.schema import notes


@dataclass(frozen=True)
class Ground:
    """The results of two passes over the trail."""

    recorded: DataFrame
    """The trail with its times as they were recorded."""
    trail: DataFrame
    """The same, corrected for clocks that are ahead or behind."""
    notes: DataFrame
    """Of the corrected trail, gathered."""
    known: survey.Survey
    holes: list[survey.Hole]
    clocks: dict[str, skew.Clock]

    @property
    def margin(self) -> float:
        """Seconds that its clocks are apart at most."""
        return skew.spread(self.clocks)


def explore(recorded: DataFrame) -> Ground:
    """Make the two passes."""
    gathered = notes(recorded).repartition(2).localCheckpoint()
    known = survey.survey(recorded, gathered)
    clocks = skew.estimate(known.hosts, known.apart)
    known.ahead = {host: clock.offset for host, clock in clocks.items()}
    corrected, noted = (skew.correct(each, clocks, known.producer_host) for each in (recorded, gathered))
    return Ground(recorded, corrected, noted, known, survey.holes(known), clocks)
