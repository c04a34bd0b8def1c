"""`python -m verification.soak`: run a scenario, print its verdict, leave a document and a picture in results/."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from verification.soak import crowd, endurance, overrun, plot, results

SCENARIOS = ("soak", "crowd", "storm", "overrun")


@click.command()
@click.option("--scenario", type=click.Choice(SCENARIOS), default="soak", show_default=True)
@click.option("--minutes", type=click.FloatRange(min=0.1), help="How long; 30, and 10 for overrun, 1 for crowd.")
@click.option("--hosts", metavar="HOST:PORT,...", help="A ZooKeeper of yours, for the soak; else one of its own.")
@click.option("--subscribers", type=click.IntRange(min=1), default=200, show_default=True, help="For crowd and storm.")
@click.option("--outage", type=float, default=3.0, show_default=True, help="Seconds that a storm keeps all out.")
@click.option("--jitter/--no-jitter", default=True, help="For storm: what becomes of it without.")
@click.option("--every", type=float, default=5.0, show_default=True, help="Seconds between two samples.")
@click.option("--leak", type=click.Choice(["memory", "threads", "files"]), help="Plant one, to see it found.")
@click.option("--results", "directory", type=click.Path(file_okay=False, path_type=Path), default=results.RESULTS)
def main(
    scenario: str,
    minutes: float | None,
    hosts: str | None,
    subscribers: int,
    outage: float,
    jitter: bool,
    every: float,
    leak: str | None,
    directory: Path,
) -> None:
    """Long runs, judged by numbers: exit code 0 if all stayed flat and every promise was kept, else 1."""
    if hosts is not None and scenario != "soak":
        raise click.UsageError("--hosts is for the soak: the other scenarios do things to their server")
    if scenario == "soak":
        document = endurance.run((minutes or 30.0) * 60, hosts=hosts, every=every, leak=leak or "", say=click.echo)
    elif scenario == "crowd":
        document = crowd.run(subscribers, (minutes or 1.0) * 60, say=click.echo)
    elif scenario == "storm":
        document = crowd.storm(subscribers, outage, jitter=jitter, say=click.echo)
    else:
        document = overrun.run((minutes or 10.0) * 60, every=every, say=click.echo)
    results.show(document)
    file = results.save(document, directory)
    click.echo(f"written: {file}")
    if document.samples:
        picture = file.with_suffix(".png")
        plot.save(document, picture)
        click.echo(f"written: {picture}")
    sys.exit(0 if document.ok else 1)


if __name__ == "__main__":
    main()
