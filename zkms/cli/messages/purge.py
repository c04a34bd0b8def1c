"""`zkms purge`: remove what waits in a queue, so that nobody takes it for delivered."""

from __future__ import annotations

import click

from zkms.admin.purge import purge as remove
from zkms.admin.purge import purgeable
from zkms.cli.connection import inspect
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, removal_options, settings, trail_option
from zkms.cli.output import confirm_removal, plural, print_json
from zkms.cli.progress import Progress
from zkms.config import as_trail
from zkms.errors import NodeMissing
from zkms.names import check_name, check_topic, new_client_id
from zkms.trail.recorder import recording


@click.command()
@click.argument("subscription")
@click.argument("topic")
@removal_options("Only say what would be removed.")
@trail_option
@settings
def purge(
    settings: CommandSettings, subscription: str, topic: str, yes: bool, dry_run: bool, trail: str | None
) -> None:
    """Remove what waits now in SUBSCRIPTION's queue for TOPIC; what comes later stays.

    The subscriber hears of a gap if it lives, and publishers that wait for a receipt read "purged by ..." instead of
    "acked". Marks of gaps stay in the queue: the subscriber has to see them.
    """
    check_name("subscription", subscription)
    check_topic(topic)
    with recording(as_trail(trail), new_client_id()) as recorder, inspect(settings) as inspector:
        session, tree, queue = inspector.session, inspector.tree, inspector.tree.queue(subscription, topic)
        try:
            count, last = purgeable(session, tree, subscription, topic)
        except NodeMissing:
            raise Failure(f"there is no queue {queue}; 'zkms queues' tells which there are") from None
        what = f"{plural(count, 'entry', 'entries')} of {subscription!r} for {topic!r}"
        if count and not (dry_run or yes):
            confirm_removal(what)
        removed = 0
        if count and not dry_run:
            try:
                with Progress("entries", count) as progress:
                    removed = remove(session, tree, subscription, topic, last, recorder, progress.add)
            except NodeMissing:
                raise Failure(f"the queue {queue} was removed by somebody else meanwhile") from None
    if settings.json:
        print_json({"subscription": subscription, "topic": topic, "found": count, "removed": removed})
    elif dry_run or not count:
        click.echo(f"Would remove {what}." if count else "The queue is empty.")
    else:
        click.echo(f"Removed {plural(removed, 'entry', 'entries')} of {subscription!r} for {topic!r}.")
