"""What of `zkms trail follow` needs Spark: imported as a whole, when the command is at work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from zkms_spark.errors import AnalysisError
from zkms_spark.live.alerts import sinks
from zkms_spark.live.follow import follow
from zkms_spark.live.job import summary
from zkms_spark.live.settings import FollowSettings
from zkms_spark.live.slo import Slo
from zkms_spark.live.window import Window
from zkms_spark.report.words import number, span
from zkms_spark.session import open_session

from zkms.cli.analyse.exported import check_directory, failures
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.errors import ZkmsError
from zkms.trail.event import SUFFIX
from zkms.trail.export.export import Exporter, NothingRecorded, find

__all__ = ["Slo", "run"]


def run(directories: tuple[str, ...], state: Path, master: str, json_: bool, **options: Any) -> None:
    """Follow until it is ended; `options` are those of FollowSettings."""
    try:
        source, bring = _source(directories, state)
        settings = FollowSettings(trail=source, state=state.absolute(), **options)
    except AnalysisError as error:
        raise Failure(str(error), Exit.USAGE) from error
    options_of_spark = {"spark.sql.streaming.metricsEnabled": "false"}
    with failures(), open_session(master, options_of_spark, small=settings.once) as spark:
        alerts = sinks(settings, json_lines=json_)
        follow(spark, settings, alerts, closed=lambda window: _tell(window, json_), bring=bring)


def _source(directories: tuple[str, ...], state: Path) -> tuple[str, Callable[[], object]]:
    """Where Spark reads, and what brings new files there: lines that processes record are exported on the way."""
    local = [Path(name) for name in directories if "://" not in name]
    for place in local:
        check_directory(str(place))
    exported = [name for name in directories if "://" in name or _is_exported(Path(name))]
    recorded = [place for place in local if any(place.glob(f"*{SUFFIX}*"))]
    if exported and (recorded or len(directories) > 1):
        raise Failure("give one exported trail, or several directories that processes record into", Exit.USAGE)
    if exported:
        return exported[0] if "://" in exported[0] else str(local[0].absolute()), lambda: None
    target = state.absolute() / "trail"
    target.mkdir(parents=True, exist_ok=True)
    return str(target), lambda: _bring(directories, target)


def _is_exported(place: Path) -> bool:
    return (place / "_exported").is_dir() or next(place.rglob("*.parquet"), None) is not None


def _bring(directories: tuple[str, ...], target: Path) -> None:
    """Export what has been finished since; what cannot be is said, and tried again the next time."""
    try:
        summary = Exporter(str(target)).run(find(directories))
    except NothingRecorded:
        return  # nothing was recorded yet
    except (ZkmsError, OSError) as error:
        click.echo(f"Warning: {error}", err=True)
        return
    for warning in summary.warnings:
        click.echo(f"Warning: {warning}", err=True)


def _tell(window: Window, json_: bool) -> None:
    told = summary(window)
    if json_:
        click.echo(json.dumps(told))
        return
    parts = [f"{number(told['published'])} published", f"{number(told['delivered'])} delivered"]
    parts += [f"p99 {span(told['p99'])}", f"{number(told['waiting'])} waiting"]
    parts += [
        f"{number(told[name])} {word}" for name, word in (("gaps", "gaps"), ("lost_lines", "lines lost")) if told[name]
    ]
    click.echo(f"{told['window']}  " + ", ".join(parts))
