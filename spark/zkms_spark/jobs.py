"""The jobs: each makes one table of a trail. The report shows the first rows of it, `Tables` writes it whole.

A job gets the trail, as far as it has been worked on, and the seconds of a step of time. Times are seconds since the
epoch, `step` is the beginning of one, and latencies are in seconds, corrected for the clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from zkms_spark.audit.skew import Clock
from zkms_spark.audit.survey import Hole, Run
from zkms_spark.audit.verdict import Verdict
from zkms_spark.errors import AnalysisError
from zkms_spark.gateway import path_exists
from zkms_spark.material import Material
from zkms_spark.schema import home
from zkms_spark.traffic import hotkeys, traffic
from zkms_spark.traffic import incidents as troubles
from zkms_spark.traffic import lag as lags

Job = Callable[[Material, float], DataFrame]
FORMATS = ("parquet", "json", "csv")


def guarantees(material: Material, _step: float) -> DataFrame:
    """Each guarantee, and whether it was kept."""
    return _frame(material, Verdict, material.verdicts)


def findings(material: Material, _step: float) -> DataFrame:
    """Violations and undecided cases, with their evidence."""
    return material.audit.findings


def absent(material: Material, _step: float) -> DataFrame:
    """Messages that were not delivered, and why."""
    return material.audit.absent


def topics(material: Material, step: float) -> DataFrame:
    """Totals and latency by topic."""
    cube = material.cube(step)
    return traffic.totals(cube).join(traffic.latency(cube, ["topic"]).drop("messages"), "topic", "left")


def throughput(material: Material, step: float) -> DataFrame:
    """Published and delivered by topic and step."""
    return traffic.throughput(material.cube(step))


def latency(material: Material, step: float) -> DataFrame:
    """Percentiles by topic, subscription and step."""
    return traffic.latency(material.cube(step), ["topic", "sub", "step"])


def topic_latency(material: Material, step: float) -> DataFrame:
    """Percentiles by topic and step."""
    return traffic.latency(material.cube(step), ["topic", "step"])


def subscriptions(material: Material, step: float) -> DataFrame:
    """Latency by subscription, and the most that waited for it; one to a pattern is one row, under the pattern."""
    queues = material.cube(step).withColumn("topic", home())
    latencies = traffic.latency(queues, ["topic", "sub"])
    return lags.worst(material.lag(step)).join(latencies, ["topic", "sub"], "full_outer")


def lag(material: Material, step: float) -> DataFrame:
    """The lag of each subscription at the end of each step in which it changed."""
    return material.lag(step)


def retries(material: Material, step: float) -> DataFrame:
    """Subscriptions with redeliveries, naks, expired messages or dead letters."""
    return traffic.retries(material.cube(step))


def hot_keys(material: Material, _step: float) -> DataFrame:
    """Messages by key (a hash, as in the trail), and its strongest burst."""
    return material.keys


def storms(material: Material, _step: float) -> DataFrame:
    """The keys that came again and again within seconds."""
    return hotkeys.storms(material.keys)


def incidents(material: Material, _step: float) -> DataFrame:
    """Gaps and purges."""
    return troubles.incidents(material.ground.notes)


def staleness(material: Material, step: float) -> DataFrame:
    """Latency of live subscriptions by node: how old what it caches may have been."""
    return traffic.latency(material.cube(step).where("kind = 'live'"), ["node"])


def cut_off(material: Material, _step: float) -> DataFrame:
    """How long and how often each node was without ZooKeeper."""
    return troubles.cut_off(material.ground.notes)


def processes(material: Material, _step: float) -> DataFrame:
    """The processes that wrote the trail, and how each ended."""
    return _frame(material, Run, material.ground.known.runs.values())


def holes(material: Material, _step: float) -> DataFrame:
    """Where lines of the trail are missing."""
    return _frame(material, Hole, material.ground.holes)


def clocks(material: Material, _step: float) -> DataFrame:
    """How far each host's clock was ahead of the others'."""
    return _frame(material, Clock, material.ground.clocks.values())


_ALL: Sequence[Job] = (
    *(guarantees, findings, absent, topics, throughput, latency, topic_latency, subscriptions, lag, retries),
    *(hot_keys, storms, incidents, staleness, cut_off, processes, holes, clocks),
)
JOBS: dict[str, Job] = {job.__name__: job for job in _ALL}
"""By name; the name is also that of the table's directory."""

_TYPES = {"str": "string", "int": "bigint", "float": "double", "bool": "boolean"}


def _frame(material: Material, kind: type[Any], rows: Iterable[Any]) -> DataFrame:
    """Dataclasses as a table of the same columns."""
    ddl = ", ".join(f"{field.name} {_TYPES[str(field.type).removesuffix(' | None')]}" for field in fields(kind))
    return material.spark.createDataFrame([astuple(row) for row in rows], ddl)


# -- as files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tables:
    """Where the tables of these jobs go, by the minute: each into a directory of its name, which must not be there."""

    directory: str
    form: str = "parquet"
    names: Sequence[str] = ()
    """All, if none."""

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in JOBS:
                raise AnalysisError(f"there is no job {name!r}: there are {', '.join(JOBS)}")
        object.__setattr__(self, "names", tuple(dict.fromkeys(self.names)) or tuple(JOBS))

    def place(self, name: str) -> str:
        """Where this table goes."""
        return f"{self.directory.rstrip('/')}/{name}"

    def check(self, spark: SparkSession) -> None:
        """`AnalysisError` if one is there: nothing is overwritten, and that is better said before the work."""
        try:
            there = [self.place(name) for name in self.names if path_exists(spark, self.place(name))]
        except Py4JJavaError as error:
            raise AnalysisError(f"cannot write to {self.directory}: {error.java_exception.getMessage()}") from error
        if there:
            raise AnalysisError(f"{there[0]} is there already: give the tables a new directory")

    def write(self, material: Material, progress: Callable[[str], None] = lambda _job: None) -> None:
        """Run the jobs; `progress` is called with the name of each as it begins."""
        for name in self.names:
            progress(name)
            writer = JOBS[name](material, traffic.MINUTE).write.format(self.form)
            try:
                writer.option("header", "true").mode("error").save(self.place(name))
            except (PySparkException, Py4JJavaError) as error:
                reason = str(error).strip().splitlines()[0]
                raise AnalysisError(f"cannot write {self.place(name)}: {reason}") from error
