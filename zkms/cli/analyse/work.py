"""What Spark is at, for whoever watches a report being made."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import click

from zkms.cli.progress import BAR

REFRESH = 0.2
WORDS = {
    "start": "starting Spark",
    "survey": "who wrote the trail",
    "audit": "holding it against the guarantees",
    "traffic": "throughput and latency",
    "lag": "lag and slow consumers",
    "keys": "hot keys and storms",
    "nodes": "nodes and incidents",
    "page": "writing the page",
}


class Work:
    """What Spark is at, on stderr: the stage, and how many of its tasks are done. Silent where nobody watches."""

    def __init__(self, stages: int) -> None:
        self._stages = stages
        self._done = -1
        self._name = ""
        self._spark: Any = None
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Work:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._run, name="zkms-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            click.echo("\r\x1b[K", nl=False, err=True)

    def begin(self, name: str) -> None:
        """The next stage."""
        self._done += 1
        self._name = name

    def watch(self, spark: Any) -> None:
        """Count this session's tasks, or nobody's."""
        self._spark = spark

    def _run(self) -> None:
        while not self._stop.wait(REFRESH):
            filled = round(BAR * self._done / self._stages)
            seconds = time.monotonic() - self._began
            bar = f"[{'#' * filled}{'.' * (BAR - filled)}]"
            text = f"{WORDS.get(self._name, self._name)}{self._tasks()}, {seconds:.0f} s"
            click.echo(f"\r\x1b[K{bar} {text}", nl=False, err=True)

    def _tasks(self) -> str:
        spark = self._spark
        if spark is None:
            return ""
        try:
            tracker = spark.sparkContext.statusTracker()
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        except Exception:  # noqa: BLE001 - it may have stopped just now, and this is only an ornament
            return ""
        known = [info for info in infos if info is not None]
        total = sum(info.numTasks for info in known)
        return f" ({sum(info.numCompletedTasks for info in known)} of {total} tasks)" if total else ""
