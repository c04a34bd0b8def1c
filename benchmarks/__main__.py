"""`python -m benchmarks`: install what is missing, start, run, stop, write."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from benchmarks import peers as who
from benchmarks import servers, table
from benchmarks.comparison import SUBSCRIBERS, compare
from zkms.cli.failure import interrupt_on_sigterm
from zkms.errors import ZkmsError

RESULTS = Path(__file__).parent / "results"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Medians are shown.")
@click.option("--seconds", type=click.FloatRange(0.01), default=3.0, show_default=True, help="Of each measurement.")
@click.option("--subscribers", type=click.IntRange(1), multiple=True, default=SUBSCRIBERS, show_default=True)
@click.option("--install/--no-install", default=True, help="Get missing servers with apt-get, if root.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default=RESULTS, help="Where peers.md, .json, .png go."
)
def main(
    names: tuple[str, ...], rounds: int, seconds: float, subscribers: tuple[int, ...], install: bool, out: Path
) -> None:
    """Compare zkms with its peers, all of them or those NAMES (redis, rabbitmq, nats, kazoo)."""
    interrupt_on_sigterm()
    chosen = who.chosen(names)
    try:
        packages = [peer.package for peer in chosen if peer.command and servers.missing(peer.command)]
        if packages and install:
            click.echo(f"installing {' '.join(packages)}", err=True)
            servers.install(packages)
        result = compare(
            chosen, rounds=rounds, seconds=seconds, subscribers=subscribers, say=lambda line: click.echo(line, err=True)
        )
    except ZkmsError as error:
        raise click.ClickException(str(error)) from error
    out.mkdir(parents=True, exist_ok=True)
    text = table.page(result)
    (out / "peers.md").write_text(text)
    (out / "peers.json").write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    from benchmarks.plot import save

    save(result, out / "peers.png")
    click.echo(text)


if __name__ == "__main__":
    main()
