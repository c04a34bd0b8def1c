"""The live job: reads a trail as it arrives, keeps the figures of every minute, and raises alerts.

    STATE/windows/*.json    the figures, a file a minute                      window.py
    STATE/progress.json     how far it is, what waits, alerts to be sent      progress.py
    STATE/checkpoint/       Spark's: which files belong to which batch

A batch is a set of files that Spark has written down before it hands them over, under a number that never changes. Its
cells are added to the windows, each of which knows the last batch that is in it; then the progress is written. After a
kill at any point Spark hands over the same batch again, and what is there already is not added twice.

The watermark is the latest time in the trail less `late`, and never ahead of this machine's clock, so that one node
with a wrong clock closes nothing. A window that lies before it is closed: then its lag is known, and alerts are
decided. What comes later still counts in its window; only the alerts of that window have been decided.
"""

from __future__ import annotations

import copy
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from zkms_spark.analysis import find_violations
from zkms_spark.errors import AnalysisError, NoTrail
from zkms_spark.live import progress as progresses
from zkms_spark.live.alerts import NotSent, Sink, warn
from zkms_spark.live.cells import VALUES, cells
from zkms_spark.live.settings import FollowSettings
from zkms_spark.live.slo import Alert, violations
from zkms_spark.live.window import CellKey, Window, Windows, changes
from zkms_spark.schema import TRAIL

POLL = 0.2
RETRY = 30.0
"""Seconds between two attempts to send what could not be sent."""
Closed = Callable[[Window], None]


class Follower:
    """The state of one job. Batches come on a thread of Spark's; `_lock` is locked while one is processed."""

    def __init__(self, settings: FollowSettings, sinks: Iterable[Sink], closed: Closed = lambda _window: None) -> None:
        self.settings = settings
        self.windows = Windows(settings.state / "windows", settings.step)
        self._path = settings.state / "progress.json"
        self._sinks = list(sinks)
        self._told = closed
        self._lock = threading.Lock()
        self._retry_at = 0.0
        self.progress = progresses.load(self._path, settings.trail, settings.step)
        if (self.progress.trail, self.progress.seconds) != (settings.trail, settings.step):
            raise AnalysisError(
                f"{settings.state} has the figures of {self.progress.trail} in windows of {self.progress.seconds:g} s: "
                "give another --state, or remove that directory to begin anew"
            )
        if self.progress.batch >= 0 and not (settings.state / "checkpoint").is_dir():
            raise AnalysisError(f"{settings.state} has lost its checkpoint: remove the directory to begin anew")

    # -- a batch -------------------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One change at a time; what fails half-way changes nothing that a later one would save."""
        with self._lock:
            before = copy.deepcopy(self.progress)
            try:
                yield
            except BaseException:
                self.progress = before
                raise

    def take(self, batch: DataFrame, number: int) -> None:
        """Add a batch, whose number is Spark's; harmless if it was added before."""
        with self._changing():
            if number <= self.progress.batch:
                return
            found = batch.agg(F.max("t").alias("newest"), F.count("*").alias("events")).first()
            if found is not None and found.events:
                self._add(batch, number)
                self.progress.newest = max(self.progress.newest, found.newest)
                self.progress.events += found.events
            self.progress.batch = number
            self._close(min(self.progress.newest, time.time()) - self.settings.late)
            self._forget()
            self.progress.save(self._path)
            self._send()

    def _add(self, batch: DataFrame, number: int) -> None:
        """Window by window, so that one alone is in memory."""
        rows = cells(batch, self.settings.step).sort("step").toLocalIterator()
        for step, group in groupby(rows, key=lambda row: row.step):
            added = [_cell(row) for row in group]
            if step < self.progress.closed:  # decided from the batch itself: the window may have it already
                self.progress.late += len(added)
                self.progress.carry(changes(added), step)
                self._alert(self.settings.slo.gaps_alone(Window(step, self.settings.step, number, dict(added))))
            window = self.windows.load(step)
            if window.add(number, added):
                self.windows.save(window)

    def _close(self, watermark: float) -> None:
        """Windows that end before the watermark, oldest first."""
        for step in self.windows.steps():
            end = step + self.settings.step
            if step < self.progress.closed or end > watermark:
                continue
            window = self.windows.load(step)
            window.waiting = self.progress.carry(changes(window.cells.items()), step)
            self.windows.save(window)
            self.progress.closed = end
            self._alert(self.settings.slo.alerts(window))
            self._told(window)

    def _forget(self) -> None:
        before = self.progress.newest - self.settings.keep
        self.progress.forget(before)
        for step in self.windows.steps():
            if step >= before or step >= self.progress.closed:
                break
            self.windows.remove(step)

    # -- alerts --------------------------------------------------------------------------------------------------

    def _alert(self, alerts: list[Alert]) -> None:
        self.progress.raise_alerts(alerts, [sink.name for sink in self._sinks])

    def _send(self) -> None:
        """Send pending alerts to each sink; those that fail stay pending."""
        before = len(self.progress.alerts)
        for sink in self._sinks:
            mine = [alert for alert in self.progress.alerts if sink.name in alert["to"]]
            if not mine:
                continue
            try:
                sink.send([{name: alert[name] for name in alert if name != "to"} for alert in mine])
            except NotSent as error:
                warn(f"{error}; tried again later")
            except Exception as error:  # noqa: BLE001 - no alert is worth the job
                warn(f"{sink.name}: {type(error).__name__}: {error}; tried again later")
            else:
                self.progress.sent(sink.name, {alert["id"] for alert in mine})
        if before:
            self._retry_at = time.monotonic() + RETRY
            self.progress.save(self._path)

    # -- between batches -----------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Close windows by the clock and send pending alerts, when no new files have come."""
        with self._changing():
            alerts = self.progress.raised
            closed = self.progress.closed
            self._close(time.time() - self.settings.late)
            if self.progress.closed != closed:
                self.progress.save(self._path)
            if self.progress.raised > alerts or (self.progress.alerts and time.monotonic() > self._retry_at):
                self._send()

    def finish(self) -> None:
        """Close all windows, and send pending alerts: nothing more will come."""
        with self._changing():
            self._close(float("inf"))
            self.progress.save(self._path)
            self._send()

    def audited(self, findings: Iterable[dict[str, Any]]) -> None:
        """Raise alerts for new violations."""
        with self._changing():
            fresh = self.progress.unknown(violations(findings))
            if fresh:
                self._alert(fresh)
                self.progress.save(self._path)
                self._send()


def follow(
    spark: SparkSession,
    settings: FollowSettings,
    sinks: Iterable[Sink],
    *,
    closed: Closed = lambda _window: None,
    bring: Callable[[], object] = lambda: None,
    stop: threading.Event | None = None,
) -> Follower:
    """Run until `stop` is set; with `settings.once` until all that is there has been taken.

    `closed` hears of every window that is closed. `bring` is called before each look for new files: it may export some.
    """
    stop = stop or threading.Event()
    settings.state.mkdir(parents=True, exist_ok=True)
    with _alone(settings):
        bring()
        follower = Follower(settings, sinks, closed)
        query = _start(spark, settings, follower)
        audit_at = time.monotonic() + settings.audit_every
        try:
            while query.isActive and not stop.wait(POLL if settings.once else settings.every):
                if settings.once:
                    continue
                bring()
                if not query.status["isTriggerActive"] and not query.status["isDataAvailable"]:
                    follower.rest()
                if settings.audit_every and time.monotonic() >= audit_at:
                    _audit(spark, settings, follower)
                    audit_at = time.monotonic() + settings.audit_every
            if (error := query.exception()) is not None:
                raise AnalysisError(f"the live job ended: {str(error).strip().splitlines()[0]}") from error
        finally:
            query.stop()
        if settings.once and not stop.is_set():
            follower.finish()
            if settings.audit_every:
                _audit(spark, settings, follower)
    return follower


def _cell(row: Any) -> tuple[CellKey, list[Any]]:
    return (row.event, row.topic, row.sub, row.bucket), [row[name] for name in VALUES]


def _start(spark: SparkSession, settings: FollowSettings, follower: Follower) -> Any:
    reader = spark.readStream.schema(TRAIL).option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
    try:
        trail = reader.option("maxFilesPerTrigger", settings.files).parquet(settings.trail)
        writer = trail.writeStream.foreachBatch(follower.take)
        writer = writer.option("checkpointLocation", (settings.state / "checkpoint").absolute().as_uri())
        if settings.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(settings.every * 1000)} milliseconds").start()
    except (AnalysisException, StreamingQueryException) as error:
        raise NoTrail(f"there is no trail in {settings.trail}: {str(error).splitlines()[0]}") from error


def _audit(spark: SparkSession, settings: FollowSettings, follower: Follower) -> None:
    """The report's audit of all that is there; what goes wrong with it is said, and the figures go on."""
    try:
        follower.audited(find_violations(spark, settings.trail))
    except NoTrail:
        return  # nothing has come yet
    except Exception as error:  # noqa: BLE001 - as for alerts
        warn(f"the audit failed, and is tried again: {str(error).splitlines()[0]}")


@contextmanager
def _alone(settings: FollowSettings) -> Iterator[None]:
    """Lock the state: two jobs would count everything twice."""
    descriptor = os.open(settings.state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise AnalysisError(f"another job keeps its figures in {settings.state}: end it, or give another") from error
    else:
        yield
    finally:
        os.close(descriptor)
