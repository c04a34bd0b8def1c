"""`zkms trail follow`: the figures of a trail live, and alerts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from zkms.cli.connection import find_hosts
from zkms.cli.failure import Failure
from zkms.cli.options import JSON_HELP, CommandSettings, seconds_option, settings, trails_option


@click.command()
@trails_option("What processes record into (repeatable), or what 'zkms trail export' writes: a directory or URL.")
@click.option(
    "--state",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Where figures and checkpoint are kept; give the same one again to go on after a stop.",
)
@seconds_option("--p99", help="Alert where a subscription's p99 is above this.")
@click.option("--lag", type=click.IntRange(min=0), metavar="MESSAGES", help="Alert where more wait for a subscription.")
@click.option(
    "--gaps",
    type=click.IntRange(min=0),
    metavar="COUNT",
    default=0,
    show_default=True,
    help="Alert where a subscription has more gap events in a minute.",
)
@seconds_option(
    "--audit-every", default=600, help="Audit the whole trail so often, and alert for violations; 0 for never."
)
@click.option("--webhook", metavar="URL", help='POST alerts there, as JSON: {"alerts": [...]}.')
@click.option("--alert-topic", "topic", metavar="TOPIC", help="Publish alerts to this topic.")
@seconds_option(
    "--late",
    default=180,
    help="How much later than others a node's trail may come; a minute is judged so long after its end.",
)
@seconds_option("--every", least=0.1, default=10, help="Look for new files so often.")
@click.option("--files", type=click.IntRange(min=1), default=200, show_default=True, help="In a batch, at the most.")
@click.option("--once", is_flag=True, help="Take what is there and end, instead of waiting for more.")
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Spark's master.")
@partial(settings, json_help=f"One object a line. {JSON_HELP}")
def follow(
    settings: CommandSettings,
    directories: tuple[str, ...],
    state: Path,
    master: str,
    p99: float | None,
    lag: int | None,
    gaps: int,
    **options: Any,
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
    try:
        from zkms.cli.analyse import spark_follow
    except ModuleNotFoundError as error:
        raise Failure(f"'zkms trail follow' needs {error.name}: pip install 'zkms[spark]'") from error
    hosts = find_hosts(settings) if options["topic"] else None
    slo = spark_follow.Slo(p99, lag, gaps)
    spark_follow.run(directories, state, master, settings.json, slo=slo, hosts=hosts, root=settings.root, **options)
