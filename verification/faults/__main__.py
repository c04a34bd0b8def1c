"""Run nemeses against workloads, write the table, and end with 1 if a guarantee was broken."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

import click
import msgspec

from benchmarks import servers
from verification.faults import clocks, table
from verification.faults.campaign import NEMESES, WORKLOADS, Campaign
from verification.faults.ensemble import Where
from verification.faults.orders import Workload
from zkms.cli.failure import interrupt_on_sigterm
from zkms.errors import ZkmsError

HERE = Path(__file__).parent


@click.command()
@click.option("--nemesis", "nemeses", type=click.Choice(list(NEMESES)), multiple=True, help="Some; all if not given.")
@click.option("--workload", "workloads", type=click.Choice(WORKLOADS), multiple=True, help="Some; all if not given.")
@click.option("--seconds", type=click.FloatRange(2.0), default=10.0, show_default=True, help="Of each cell's traffic.")
@click.option("--seed", type=int, default=1, show_default=True, help="Chooses victims, moments and delays.")
@click.option(
    "--zookeeper", "where", type=click.Choice(["embedded", "containers"]), default="embedded", show_default=True
)
@click.option("--trail", is_flag=True, help="Processes record trails, and Spark's audit judges them as well.")
@click.option("--install/--no-install", default=True, help="Get libfaketime with apt-get where it is missing, if root.")
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/faults"),
    show_default=True,
    help="Where journals, logs and trails of a violation go.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="For faults.md and faults.json; verification/faults/results if all cells are run.",
)
def main(
    nemeses: tuple[str, ...],
    workloads: tuple[str, ...],
    seconds: float,
    seed: int,
    where: str,
    trail: bool,
    install: bool,
    keep: Path,
    out: Path | None,
) -> None:
    """Inject faults while messages flow, and check whether every guarantee holds."""
    interrupt_on_sigterm()
    chosen = nemeses or tuple(NEMESES)
    if out is None and not nemeses and not workloads:
        out = HERE / "results"

    def say(line: str) -> None:
        click.echo(line, err=True)
        if out is not None:
            write(campaign, out)  # after each cell, in case the run is interrupted

    campaign = Campaign(cast(Where, where), seconds, seed, trail, keep.absolute(), say)
    try:
        if install and clocks.library() is None and "server-clock" in chosen:
            click.echo(f"installing {clocks.PACKAGE}", err=True)
            servers.install([clocks.PACKAGE])
    except ZkmsError as error:
        click.echo(f"without {clocks.PACKAGE}: {error}", err=True)
    try:
        campaign.run(chosen, cast(tuple[Workload, ...], workloads or WORKLOADS))
    except ZkmsError as error:
        raise click.ClickException(str(error)) from error
    click.echo(table.page(table.result(campaign)))
    sys.exit(not all(cell.holds for cell in campaign.cells))


def write(campaign: Campaign, out: Path) -> None:
    """Write the results as a page and as JSON."""
    found = table.result(campaign)
    out.mkdir(parents=True, exist_ok=True)
    (out / "faults.md").write_text(table.page(found))
    (out / "faults.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


if __name__ == "__main__":
    main()
