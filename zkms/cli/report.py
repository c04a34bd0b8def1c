"""`zkms report`: Spark's analysis of a trail as one HTML file."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure, set_up_logging
from zkms.cli.options import JSON_HELP, VERBOSE_HELP
from zkms.cli.output import plural, print_json
from zkms.cli.progress import BAR, Progress

if TYPE_CHECKING:
    from zkms_spark.analysis import Analysis

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


@click.command()
@click.option(
    "--trail",
    "directories",
    metavar="DIR",
    envvar="ZKMS_TRAIL",
    show_envvar=True,
    multiple=True,
    required=True,
    help="What processes record into (may be given repeatedly), or what 'zkms trail export' wrote: a directory or URL.",
)
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Spark's master.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="Where the page goes.",
)
@click.option("--strict", is_flag=True, help="Exit code 7 unless the audit says that all guarantees were kept.")
@click.option("--json", "json_", is_flag=True, help=JSON_HELP)
@click.option("-v", "--verbose", count=True, help=VERBOSE_HELP)
@click.pass_context
def report(
    ctx: click.Context,
    directories: tuple[str, ...],
    master: str,
    out: Path,
    strict: bool,
    json_: bool,
    verbose: int,
) -> None:
    """Say what every message did: latency, lag, storms, and whether the guarantees were kept, in one HTML file.

    Runs on this machine, on your Java or the one that 'pip install zkms[spark]' brings, or on a cluster's --master,
    which must be able to read the trail.
    """
    set_up_logging(verbose)
    check_out(out)
    analysis = make_report(directories, master, out)
    _tell(analysis, out, json_)
    if strict and analysis.overall != "kept":
        ctx.exit(Exit.AMISS)


def check_out(out: Path) -> None:
    """`Failure` if a page cannot go there."""
    if not out.parent.is_dir():
        raise Failure(f"there is no directory {str(out.parent)!r} for the report", Exit.USAGE)


def make_report(directories: tuple[str, ...], master: str, out: Path) -> Analysis:
    """Analyse what was recorded, and write the page."""
    from zkms_spark.errors import NoSpark, NoTrail

    try:
        with _exported(directories) as trail:
            return _analyse(trail, master, out, ", ".join(directories))
    except ModuleNotFoundError as error:
        raise Failure(f"a report needs {error.name}: pip install 'zkms[spark]'") from error
    except NoTrail as error:
        raise Failure(str(error), Exit.NO_TRAIL) from error
    except NoSpark as error:
        raise Failure(str(error), Exit.NO_SPARK) from error


def _analyse(trail: str, master: str, out: Path, source: str) -> Analysis:
    from zkms_spark.analysis import STAGES, analyse
    from zkms_spark.report import render
    from zkms_spark.session import SMALL_BYTES, open_session

    local = Path(trail)
    small = local.is_dir() and sum(file.stat().st_size for file in local.rglob("*.parquet")) < SMALL_BYTES
    with Work(len(STAGES) + 2) as work:
        work.begin("start")
        with open_session(master, small=small) as spark:
            work.watch(spark)
            analysis = analyse(spark, trail, work.begin)
            work.watch(None)
        analysis.source = source  # what was asked for, not where it was exported to on the way
        work.begin("page")
        _write(out, render(analysis))
    return analysis


def _write(out: Path, page: str) -> None:
    """Whole or not at all."""
    half = out.with_name(f".{out.name}.half")
    try:
        half.write_text(page, encoding="utf-8")
        half.replace(out)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise Failure(f"cannot write {out}: {error.strerror or error}") from error


@contextmanager
def _exported(directories: tuple[str, ...]) -> Iterator[str]:
    """Where the Parquet files are: what was given, or for a block, what is made of the lines in it."""
    from zkms.trail.event import OPEN_SUFFIX, SUFFIX
    from zkms.trail.export import Exporter, NoTrail, find, size_of

    raw = []
    for directory in directories:
        if "://" in directory:
            continue
        if not Path(directory).is_dir():
            raise Failure(
                f"there is no directory {directory!r}: give the one that was passed as trail= or --trail", Exit.NO_TRAIL
            )
        raw += [directory] if any(Path(directory).glob(f"*{SUFFIX}*")) else []
    if not raw:
        if len(directories) > 1:
            raise Failure("give one exported trail, or several directories that processes record into", Exit.USAGE)
        place = directories[0]
        if "://" not in place and next(Path(place).rglob("*.parquet"), None) is None:  # sooner than Spark would say it
            raise Failure(f"there is no trail in {place!r}: nothing was recorded or exported there yet", Exit.NO_TRAIL)
        yield place
        return
    if len(raw) != len(directories):
        raise Failure("some of these are exported trails and some are not: export all into one first", Exit.USAGE)
    with tempfile.TemporaryDirectory(prefix="zkms-report-") as target:
        try:
            files = find(raw)
        except NoTrail as error:
            raise Failure(str(error), Exit.NO_TRAIL) from error
        with Progress("bytes", sum(map(size_of, files))) as progress:
            summary = Exporter(target, progress.add).run(files)
        for warning in summary.warnings:
            click.echo(f"Warning: {warning}", err=True)
        if not summary.files:
            names = ", ".join(raw)
            still = f": {plural(summary.open, 'file')} ({OPEN_SUFFIX}) still being written" if summary.open else ""
            raise Failure(f"there is no finished trail in {names}{still}", Exit.NO_TRAIL)
        yield target


def _tell(analysis: Analysis, out: Path, json_: bool) -> None:
    if json_:
        print_json(_figures(analysis, out))
        return
    for line in told(analysis):
        click.echo(line)
    click.echo(f"Report: {out.resolve()}")


def told(analysis: Analysis) -> list[str]:
    """The report in a few lines."""
    from zkms_spark.summary import headline, reasons, sentences

    return [headline(analysis), *(f"  {line}" for line in [*reasons(analysis), *sentences(analysis)])]


def _figures(analysis: Analysis, out: Path) -> dict[str, Any]:
    return {
        "verdict": analysis.overall,
        "guarantees": [vars(verdict) for verdict in analysis.verdicts],
        "events": analysis.events,
        "messages": analysis.messages,
        "topics": analysis.topics,
        "subscriptions": analysis.subscriptions,
        "nodes": analysis.nodes,
        "findings": analysis.findings,
        "seconds": analysis.seconds,
        "report": str(out.resolve()),
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
