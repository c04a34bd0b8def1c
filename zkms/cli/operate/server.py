"""`zkms server`: an embedded ZooKeeper in the foreground, until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import FrameType

import click

from zkms.errors import ZkmsError
from zkms.server.embedded import EmbeddedZooKeeper

DEFAULT_PORT = 2181


@click.command()
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="Servers; an odd number.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Client port; further nodes take the ports after it.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory to keep the data in; without it they are gone when the server stops.",
)
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the server's log; one per node with several nodes.",
)
def server(nodes: int, port: int, data: Path | None, log: Path | None) -> None:
    """Run a ZooKeeper on this machine until Ctrl-C, for development, demonstrations and tests."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    # Set before the start, which takes a second or two: a signal then still ends in a clean close.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    click.echo("Starting ZooKeeper...", err=True)
    try:
        with EmbeddedZooKeeper(nodes, port=port, data=data, log=log, short_lived=False) as zookeeper:
            click.echo(f"ZooKeeper listens on {zookeeper.hosts}")
            click.echo(f"Data: {zookeeper.data} ({'kept' if data else 'temporary, removed at the end'})")
            click.echo("Use it from another terminal (Ctrl-C here stops it):")
            click.echo(f"  export ZKMS_HOSTS={zookeeper.hosts}")
            while not stop.wait(timeout=1.0):
                zookeeper.check()
    except ZkmsError as error:
        raise click.ClickException(str(error)) from error
    click.echo("ZooKeeper has stopped.", err=True)
