"""`zkms topics`: the topics and how many subscribe to each."""

from __future__ import annotations

import click

from zkms.cli.connection import inspect
from zkms.cli.options import Settings, settings
from zkms.cli.output import print_json, print_table


@click.command()
@settings
def topics(settings: Settings) -> None:
    """List topics, with how many subscribe to each."""
    with inspect(settings) as inspector:
        found = inspector.discovery.topics()
    if settings.json:
        print_json(found)
    else:
        print_table(("TOPIC", "SUBSCRIPTIONS"), [(t.topic, t.subscriptions) for t in found], empty="No topics.")
