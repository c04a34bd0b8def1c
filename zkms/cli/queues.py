"""`zkms queues`: what waits where."""

from __future__ import annotations

import click

from zkms.cli.connection import inspect
from zkms.cli.options import Settings, settings
from zkms.cli.output import print_json, print_table
from zkms.names import check_topic


@click.command()
@click.option("--topic", help="Only the queues of this topic.")
@settings
def queues(settings: Settings, topic: str | None) -> None:
    """List queues and how many entries wait in each, the longest first.

    An entry holds one or more messages. A queue that nobody is registered for was left by a subscriber that is gone:
    the cleaner removes it after its grace period. No queue is read, however long it is.
    """
    if topic is not None:
        check_topic(topic)
    with inspect(settings) as inspector:
        found = [q for q in inspector.discovery.queues() if topic is None or q.topic == topic]
    found.sort(key=lambda q: (-q.entries, q.topic, q.subscription))
    if settings.json:
        print_json(found)
        return
    rows = [(q.subscription, q.topic, q.entries, q.registered, q.state) for q in found]
    print_table(("SUBSCRIPTION", "TOPIC", "ENTRIES", "REGISTERED", "STATE"), rows, empty="No queues.")
