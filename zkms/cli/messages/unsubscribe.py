"""`zkms unsubscribe`: give up a durable subscription or a group that nobody will read any more."""

from __future__ import annotations

import click
import msgspec

from zkms.cli.connection import Inspector, inspect
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, settings, trail_option
from zkms.cli.output import confirmed, plural, print_json
from zkms.errors import NodeMissing
from zkms.names import check_name, check_topic, new_client_id
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.trail.recorder import recording
from zkms.trail.settings import as_trail
from zkms.tree.entry import parse_entry
from zkms.tree.paths import lanes_of
from zkms.tree.records import Ledger, Registration, decode


@click.command()
@click.argument("subscription")
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would be lost.")
@trail_option
@settings
@click.pass_context
def unsubscribe(
    ctx: click.Context,
    settings: CommandSettings,
    subscription: str,
    topic: str,
    yes: bool,
    dry_run: bool,
    trail: str | None,
) -> None:
    """Give up SUBSCRIPTION, a durable one or a group, of TOPIC, with all that waits in it.

    Publishers do not write to it any more, and are not held up by it if it is full. While a process reads it, it is
    refused: stop that one first. Its dead letters stay, 'zkms dead purge' removes them.
    """
    check_name("subscription", subscription)
    check_topic(topic)
    with recording(as_trail(trail), new_client_id()) as recorder, inspect(settings) as inspector:
        enrolment = DurableRegistration(inspector.session, inspector.tree, new_client_id())
        found = enrolment.find(topic, subscription)
        if found is None or found.kind == "live":
            raise Failure(
                f"there is no durable subscription or group {subscription!r} of {topic!r}; "
                "'zkms groups' tells which there are"
            )
        if readers := enrolment.members(topic, subscription):
            reader = readers[0]
            raise Failure(
                f"{subscription!r} of {topic!r} is read by client {reader!r}: stop that one first", Exit.IN_USE
            )
        waiting = _waiting(inspector, topic, subscription, found)
        what = f"{subscription!r} of {topic!r}, with {plural(waiting, 'message')} that wait{'s' * (waiting == 1)} in it"
        if not (dry_run or yes or confirmed(what)):
            click.echo("Nothing was removed.", err=True)
            ctx.exit(Exit.ERROR)
        if not dry_run:
            zxid = enrolment.dismiss(topic, subscription)
            if recorder is not None:
                recorder.note("unsubscribed", sub=subscription, topic=topic, kind=found.kind, zxid=zxid)
    if settings.json:
        print_json({"subscription": subscription, "topic": topic, "waiting": waiting, "removed": not dry_run})
    else:
        click.echo(f"{'Would remove' if dry_run else 'Removed'} {what}.")


def _waiting(inspector: Inspector, topic: str, subscription: str, registration: Registration) -> int:
    """Messages that nobody has acked."""
    session, tree = inspector.session, inspector.tree
    total = 0
    for number, lane in enumerate(lanes_of(subscription, registration)):
        try:
            entries = [parse_entry(name) for name in session.children(tree.queue(lane, topic))[0]]
            parts = decode(session.get(tree.ledger(subscription, topic, number))[0], Ledger).parts
        except NodeMissing:
            continue
        except msgspec.MsgspecError:
            parts = {}  # overwritten by another program
        done = sum(parts[entry.sequence].count for entry in entries if entry.sequence in parts)
        total += sum(entry.messages for entry in entries) - done
    return total
