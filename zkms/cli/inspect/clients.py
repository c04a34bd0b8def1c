"""`zkms clients`: the processes that are connected."""

from __future__ import annotations

import click

from zkms.cli.connection import inspect
from zkms.cli.options import CommandSettings, settings
from zkms.cli.output import clock, print_found


@click.command()
@settings
def clients(settings: CommandSettings) -> None:
    """List the processes that are connected, with host and process id."""
    with inspect(settings) as inspector:
        found = inspector.discovery.clients()
    rows = [(c.client, c.host, str(c.pid), c.version, clock(c.started)) for c in found]
    columns = ("CLIENT", "HOST", "PID", "VERSION", "CONNECTED SINCE")
    print_found(settings.json, found, columns, rows, empty="No clients.")
