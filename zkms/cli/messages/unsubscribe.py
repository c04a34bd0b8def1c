"""`zkms unsubscribe`: give up a durable subscription or a group that nobody will read any more."""

from __future__ import annotations

import click

from zkms.admin.unsubscribe import find_abandoned
from zkms.admin.unsubscribe import unsubscribe as remove
from zkms.cli.connection import inspect
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, removal_options, settings, trail_option
from zkms.cli.output import confirm_removal, plural, print_json
from zkms.config import as_trail
from zkms.errors import NotSubscribed, SubscriptionInUse
from zkms.names import check_name, check_topic, new_client_id
from zkms.trail.recorder import recording


@click.command()
@click.argument("subscription")
@click.argument("topic")
@removal_options("Only say what would be lost.")
@trail_option
@settings
def unsubscribe(
    settings: CommandSettings, subscription: str, topic: str, yes: bool, dry_run: bool, trail: str | None
) -> None:
    """Give up SUBSCRIPTION, a durable one or a group, of TOPIC, with all that waits in it.

    Publishers do not write to it any more, and are not held up by it if it is full. While a process reads it, it is
    refused: stop that one first. Its dead letters stay, 'zkms dead purge' removes them.
    """
    check_name("subscription", subscription)
    check_topic(topic)
    client_id = new_client_id()
    with recording(as_trail(trail), client_id) as recorder, inspect(settings) as inspector:
        place = inspector.session, inspector.tree, client_id, topic, subscription
        try:
            kind, waiting = find_abandoned(*place)
        except NotSubscribed:
            raise Failure(
                f"there is no durable subscription or group {subscription!r} of {topic!r}; "
                "'zkms groups' tells which there are"
            ) from None
        except SubscriptionInUse as error:
            raise Failure(
                f"{subscription!r} of {topic!r} is read by client {error.owner!r}: stop that one first", Exit.IN_USE
            ) from None
        what = f"{subscription!r} of {topic!r}, with {plural(waiting, 'message')} that wait{'s' * (waiting == 1)} in it"
        if not (dry_run or yes):
            confirm_removal(what)
        if not dry_run:
            remove(*place, kind, recorder)
    if settings.json:
        print_json({"subscription": subscription, "topic": topic, "waiting": waiting, "removed": not dry_run})
    else:
        click.echo(f"{'Would remove' if dry_run else 'Removed'} {what}.")
