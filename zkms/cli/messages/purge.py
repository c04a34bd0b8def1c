"""`zkms purge`: remove what waits in a queue, so that nobody takes it for delivered."""

from __future__ import annotations

import getpass
import socket

import click
import msgspec

from zkms.cli.connection import Inspector, inspect
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, settings, trail_option
from zkms.cli.output import confirmed, plural, print_json
from zkms.cli.progress import Progress
from zkms.errors import BadVersion, ConnectionLost, NodeMissing, TransactionFailed
from zkms.names import check_name, check_topic, new_client_id
from zkms.trail.recorder import recording
from zkms.trail.settings import as_trail
from zkms.tree.entry import parse_entry
from zkms.tree.records import QueueState, decode, encode
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import SetData
from zkms.zookeeper.session import failed_with


@click.command()
@click.argument("subscription")
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@trail_option
@settings
@click.pass_context
def purge(
    ctx: click.Context,
    settings: CommandSettings,
    subscription: str,
    topic: str,
    yes: bool,
    dry_run: bool,
    trail: str | None,
) -> None:
    """Remove what waits now in SUBSCRIPTION's queue for TOPIC; what comes later stays.

    The subscriber hears of a gap if it lives, and publishers that wait for a receipt read "purged by ..." instead of
    "acked". Marks of gaps stay in the queue: the subscriber has to see them.
    """
    check_name("subscription", subscription)
    check_topic(topic)
    with recording(as_trail(trail), new_client_id()) as recorder, inspect(settings) as inspector:
        queue = inspector.tree.queue(subscription, topic)
        count, last = _waiting(inspector, queue)
        what = f"{plural(count, 'entry', 'entries')} of {subscription!r} for {topic!r}"
        if count and not (dry_run or yes or confirmed(what)):
            click.echo("Nothing was removed.", err=True)
            ctx.exit(Exit.ERROR)
        removed = 0
        if count and not dry_run:
            removed, names = _remove(inspector, queue, count, last)
            if recorder is not None:
                recorder.purged(subscription, topic, names, _reason())
    if settings.json:
        print_json({"subscription": subscription, "topic": topic, "found": count, "removed": removed})
    elif dry_run or not count:
        click.echo(f"Would remove {what}." if count else "The queue is empty.")
    else:
        click.echo(f"Removed {plural(removed, 'entry', 'entries')} of {subscription!r} for {topic!r}.")


def _waiting(inspector: Inspector, queue: str) -> tuple[int, int]:
    """How many entries there are to remove, and the highest sequence among them."""
    try:
        names, _ = inspector.session.children(queue)
    except NodeMissing:
        raise Failure(f"there is no queue {queue}; 'zkms queues' tells which there are") from None
    sequences = [entry.sequence for entry in map(parse_entry, names) if not entry.gap]
    return len(sequences), max(sequences, default=-1)


def _remove(inspector: Inspector, queue: str, count: int, last: int) -> tuple[int, set[str]]:
    """Leave the reason first, then delete: a receipt that finds its entry gone reads why.

    Returns how many entries were removed, and the names of these.
    """
    _leave_reason(inspector, queue, last)
    names: set[str] = set()

    def ours(name: str) -> bool:
        entry = parse_entry(name)
        if entry.gap or entry.sequence > last:
            return False
        names.add(name)
        return True

    with Progress("entries", count) as progress:
        removed = delete_children(inspector.session, queue, progress=progress.add, only=ours)
    return removed, names


def _leave_reason(inspector: Inspector, queue: str, last: int) -> None:
    reason = _reason()
    while True:
        try:
            data, stat = inspector.session.get(queue)
        except NodeMissing:
            raise Failure(f"the queue {queue} was removed by somebody else meanwhile") from None
        try:
            state = decode(data, QueueState)
        except msgspec.MsgspecError:
            state = QueueState("")  # overwritten by another program
        changed = msgspec.structs.replace(state, dropped=max(last, state.dropped), reason=reason)
        try:
            inspector.session.multi([SetData(queue, encode(changed), stat.version)])
            return
        except TransactionFailed as error:
            if not (failed_with(error, BadVersion) or failed_with(error, NodeMissing)):
                raise error.cause from error
        except ConnectionLost:
            continue  # reading again shows whether it was written; writing it twice does no harm


def _reason() -> str:
    return f"purged by {_user()}@{socket.gethostname()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return "somebody"
