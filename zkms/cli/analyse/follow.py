"""`zkms trail follow`: the figures of a trail live, and alerts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zkms.cli.connection import find_hosts
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure, set_up_logging
from zkms.cli.options import HOSTS_HELP, JSON_HELP, ROOT_HELP, VERBOSE_HELP, CommandSettings, Seconds
from zkms.errors import ZkmsError

if TYPE_CHECKING:
    from zkms_spark.live.settings import FollowSettings
    from zkms_spark.live.window import Window


@click.command()
@click.option(
    "--trail",
    "directories",
    metavar="DIR",
    envvar="ZKMS_TRAIL",
    show_envvar=True,
    multiple=True,
    required=True,
    help="What processes record into (repeatable), or what 'zkms trail export' writes: a directory or URL.",
)
@click.option(
    "--state",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Where figures and checkpoint are kept; give the same one again to go on after a stop.",
)
@click.option("--p99", type=Seconds(min=0), metavar="SECONDS", help="Alert where a subscription's p99 is above this.")
@click.option("--lag", type=click.IntRange(min=0), metavar="MESSAGES", help="Alert where more wait for a subscription.")
@click.option(
    "--gaps",
    type=click.IntRange(min=0),
    metavar="COUNT",
    default=0,
    show_default=True,
    help="Alert where a subscription has more gap events in a minute.",
)
@click.option(
    "--audit-every",
    type=Seconds(min=0),
    metavar="SECONDS",
    default=600,
    show_default=True,
    help="Audit the whole trail so often, and alert for violations; 0 for never.",
)
@click.option("--webhook", metavar="URL", help='POST alerts there, as JSON: {"alerts": [...]}.')
@click.option("--alert-topic", metavar="TOPIC", help="Publish alerts to this topic.")
@click.option(
    "--late",
    type=Seconds(min=0),
    metavar="SECONDS",
    default=180,
    show_default=True,
    help="How much later than others a node's trail may come; a minute is judged so long after its end.",
)
@click.option(
    "--every",
    type=Seconds(min=0.1),
    metavar="SECONDS",
    default=10,
    show_default=True,
    help="Look for new files so often.",
)
@click.option("--files", type=click.IntRange(min=1), default=200, show_default=True, help="In a batch, at the most.")
@click.option("--once", is_flag=True, help="Take what is there and end, instead of waiting for more.")
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Spark's master.")
@click.option("--hosts", metavar="HOST:PORT,...", envvar="ZKMS_HOSTS", help=HOSTS_HELP)
@click.option("--root", metavar="PATH", envvar="ZKMS_ROOT", default="/zkms", help=ROOT_HELP)
@click.option("--json", "json_", is_flag=True, help=f"One object a line. {JSON_HELP}")
@click.option("-v", "--verbose", count=True, help=VERBOSE_HELP)
def follow(
    directories: tuple[str, ...],
    state: Path,
    p99: float | None,
    lag: int | None,
    gaps: int,
    audit_every: float,
    webhook: str | None,
    alert_topic: str | None,
    late: float,
    every: float,
    files: int,
    once: bool,
    master: str,
    hosts: str | None,
    root: str,
    json_: bool,
    verbose: int,
) -> None:
    """Keep a trail's figures live, minute by minute, and raise alerts.

    Reads what processes record, or what 'zkms trail export' writes, as it arrives. A line is printed for every minute
    when all nodes' trails of it are in; STATE/windows has its figures, a JSON file a minute. An alert is raised where
    a subscription is too slow, too far behind or had a gap, and where the audit finds a violation.

    May be killed and started again at any time with the same --state: nothing is counted twice or left out.

    \b
    Examples:
      zkms trail follow --trail /var/lib/zkms/trail --state /var/lib/zkms/live --p99 0.5 --lag 10000
      zkms trail follow --trail s3a://bucket/trail --state live --webhook https://alerts.example.com/zkms
      zkms trail follow --trail exported --state live --once --json | jq .
      jq '.subscriptions[] | {topic, sub, p99, waiting}' live/windows/*.json
    """
    set_up_logging(verbose)
    try:
        from zkms_spark.errors import AnalysisError, NoSpark, NoTrail
        from zkms_spark.live.settings import FollowSettings
        from zkms_spark.live.slo import Slo

        source, bring = _source(directories, state)
        settings = FollowSettings(
            trail=source,
            state=state.absolute(),
            slo=Slo(p99, lag, gaps),
            late=late,
            every=every,
            files=files,
            audit_every=audit_every,
            webhook=webhook,
            topic=alert_topic,
            hosts=find_hosts(CommandSettings(hosts, root, json_)) if alert_topic else None,
            root=root,
            once=once,
        )
    except ModuleNotFoundError as error:
        raise Failure(f"'zkms trail follow' needs {error.name}: pip install 'zkms[spark]'") from error
    except AnalysisError as error:
        raise Failure(str(error), Exit.USAGE) from error
    try:
        _run(settings, master, bring, json_)
    except NoTrail as error:
        raise Failure(str(error), Exit.NO_TRAIL) from error
    except NoSpark as error:
        raise Failure(str(error), Exit.NO_SPARK) from error


def _run(settings: FollowSettings, master: str, bring: Callable[[], object], json_: bool) -> None:
    from zkms_spark.live.alerts import sinks
    from zkms_spark.live.follow import follow
    from zkms_spark.session import open_session

    with open_session(master, {"spark.sql.streaming.metricsEnabled": "false"}, small=settings.once) as spark:
        follow(
            spark,
            settings,
            sinks(settings, json_lines=json_),
            closed=lambda window: _tell(window, json_),
            bring=bring,
        )


def _source(directories: tuple[str, ...], state: Path) -> tuple[str, Callable[[], object]]:
    """Where Spark reads, and what brings new files there: lines that processes record are exported on the way."""
    from zkms.trail.event import SUFFIX

    local = [Path(name) for name in directories if "://" not in name]
    for place in local:
        if not place.is_dir():
            raise Failure(
                f"there is no directory {str(place)!r}: give the one that was passed as trail= or --trail",
                Exit.NO_TRAIL,
            )
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
    from zkms.trail.export.export import Exporter, NothingRecorded, find

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
    import json

    from zkms_spark.live.job import summary
    from zkms_spark.report.words import number, span

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
