"""`zkms dead`: what nobody could do with, why, and the ways out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from zkms.admin.dead_letters import DeadLetterInfo, DeadLetterPlace, DeadLetters
from zkms.cli.connection import Inspector, inspect
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, removal_options, settings, trail_option
from zkms.cli.output import clock, confirm_removal, data_json, data_text, escape, plural, print_json, print_table
from zkms.cli.progress import Progress
from zkms.config import as_trail
from zkms.errors import ConnectionLost, InvalidArgument, NotSubscribed, QueueFull, StoreError, ZkmsError
from zkms.names import check_name, check_topic, new_client_id
from zkms.trail.recorder import recording

Chosen = tuple[str, ...]


FIELDS = (
    *("id", "topic", "subscription", "reason", "error", "attempts", "at", "key", "headers", "producer", "seq"),
    *("published_at", "foreign"),
)
"""What programs are told of a letter, besides its data."""


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--subscription", help="Only those of this durable subscription or group.")(command)
    return click.option("--topic", help="Only those of subscriptions to this topic, or pattern.")(command)


def _choice(command: Callable[..., Any]) -> Callable[..., Any]:
    everything = "All that are there now, within --topic and --subscription."
    command = _filters(click.option("--all", "everything", is_flag=True, help=everything)(command))
    return click.argument("ids", metavar="[ID]...", nargs=-1)(command)


@click.group()
def dead() -> None:
    """Dead letters: messages that failed too often, were rejected, or are none; see why, requeue or purge them.

    \b
    Examples:
      zkms dead list --subscription workers
      zkms dead show shop-4711-ab12cd34:17
      zkms dead requeue --subscription workers --all
      zkms dead purge shop-4711-ab12cd34:17
    """


@dead.command("list")
@_filters
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Letters to show.")
@settings
def list_(settings: CommandSettings, topic: str | None, subscription: str | None, limit: int) -> None:
    """List dead letters, the oldest of each subscription first: ID is what the other commands take."""
    with inspect(settings) as inspector:
        letters, places = _find(inspector, topic, subscription)
        found = letters.read(places[:limit])
    if settings.json:
        print_json([as_object(letter) for letter in found])
        return
    rows = [
        (d.id, d.subscription, d.topic, d.key, d.attempts, clock(d.at), _why(d), "-" if d.foreign else _text(d))
        for d in found
    ]
    print_table(
        ("ID", "SUBSCRIPTION", "TOPIC", "KEY", "ATTEMPTS", "SINCE", "REASON", "DATA"), rows, empty="No dead letters."
    )
    if len(places) > len(found):
        click.echo(f"... of {plural(len(places), 'letter')}; --limit shows more.")


@dead.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_filters
@settings
def show(settings: CommandSettings, ids: Chosen, topic: str | None, subscription: str | None) -> None:
    """Show all that is known of dead letters; one message may be a letter of several subscriptions."""
    with inspect(settings) as inspector:
        found = _chosen(*_find(inspector, topic, subscription), ids)
    if settings.json:
        print_json([as_object(letter) for letter in found])
        return
    for number, letter in enumerate(found):
        if number:
            click.echo()
        for name, value in _facts(letter):
            click.echo(f"{click.style(name, bold=True):<14} {escape(value)}")


@dead.command()
@_choice
@trail_option
@settings
def requeue(
    settings: CommandSettings,
    ids: Chosen,
    topic: str | None,
    subscription: str | None,
    everything: bool,
    trail: str | None,
) -> None:
    """Put letters back into their subscription's queue: delivered again, with all attempts before them.

    Each goes into the partition of its key, behind what waits there, once: whoever does the same at the same time finds
    it gone. What cannot be requeued (no message, a subscription that is no more, or one that is full, a quota that is
    used up) stays, is told on stderr, and makes the exit code 1.
    """
    _check_choice(ids, everything)
    requeued, kept = 0, 0
    with recording(as_trail(trail), new_client_id()) as recorder, inspect(settings) as inspector:
        letters, places = _find(inspector, topic, subscription)
        letters.trail = recorder
        chosen = None if everything else _chosen(letters, places, ids)
        try:
            with Progress("letters", len(places if chosen is None else chosen)) as progress:
                for letter in letters.each(places) if chosen is None else chosen:
                    if _requeue(letters, letter):
                        requeued += 1
                    else:
                        kept += 1
                    progress.add(1)
        except ZkmsError as error:
            error.add_note(f"{plural(requeued, 'letter')} had been requeued before that")
            raise
    if settings.json:
        print_json({"requeued": requeued, "kept": kept})
    else:
        click.echo(f"Requeued {plural(requeued, 'letter')}" + (f", {kept:,} stay." if kept else "."))
    if kept:
        raise click.exceptions.Exit(Exit.ERROR)


def _requeue(letters: DeadLetters, letter: DeadLetterInfo) -> bool:
    try:
        letters.requeue(letter)
    except ConnectionLost:
        raise
    except (InvalidArgument, NotSubscribed, QueueFull, StoreError) as error:
        click.echo(f"{escape(letter.id)} of {escape(letter.subscription)}: {escape(str(error))}", err=True)
        return False
    return True


@dead.command()
@_choice
@removal_options("Only say how many would be removed.")
@settings
def purge(
    settings: CommandSettings,
    ids: Chosen,
    topic: str | None,
    subscription: str | None,
    everything: bool,
    yes: bool,
    dry_run: bool,
) -> None:
    """Remove dead letters for good."""
    _check_choice(ids, everything)
    with inspect(settings) as inspector:
        letters, places = _find(inspector, topic, subscription)
        if not everything:
            places = [letter.place for letter in _chosen(letters, places, ids)]
        if places and not (yes or dry_run):
            confirm_removal(plural(len(places), "dead letter"))
        removed = 0 if dry_run else letters.purge(places)
    if settings.json:
        print_json({"found": len(places), "removed": removed})
    elif dry_run:
        click.echo(f"Would remove {plural(len(places), 'dead letter')}.")
    else:
        click.echo(f"Removed {plural(removed, 'dead letter')}.")


def _check_choice(ids: Chosen, everything: bool) -> None:
    if bool(ids) == everything:
        raise click.UsageError("give either IDs, as 'zkms dead list' shows them, or --all")


def _find(
    inspector: Inspector, topic: str | None, subscription: str | None
) -> tuple[DeadLetters, list[DeadLetterPlace]]:
    if topic is not None:
        check_topic(topic)
    if subscription is not None:
        check_name("subscription", subscription)
    letters = DeadLetters(inspector.session, inspector.tree)
    return letters, letters.find(topic, subscription)


def _chosen(letters: DeadLetters, places: list[DeadLetterPlace], ids: Chosen) -> list[DeadLetterInfo]:
    wanted = {*ids}
    found = [letter for letter in letters.each(places) if letter.id in wanted]
    missing = wanted - {letter.id for letter in found}
    if missing:
        raise Failure(f"there is no dead letter {escape(min(missing))!r}; 'zkms dead list' tells which there are")
    return found


def as_object(letter: DeadLetterInfo) -> dict[str, Any]:
    """A letter for programs."""
    return {name: getattr(letter, name) for name in FIELDS} | data_json(letter.data)


def _why(letter: DeadLetterInfo) -> str:
    return f"{letter.reason}: {letter.error}" if letter.error else letter.reason


def _text(letter: DeadLetterInfo) -> str:
    return data_text(letter.data) if letter.codec is None else f"(encoded with codec {letter.codec!r})"


def _facts(letter: DeadLetterInfo) -> list[tuple[str, str]]:
    facts = [
        ("id", letter.id),
        ("topic", letter.topic),
        ("subscription", letter.subscription),
        ("reason", letter.reason),
        ("last error", letter.error),
        ("attempts", str(letter.attempts) if letter.attempts else ""),
        ("dead since", clock(letter.at)),
        ("published", clock(letter.published_at) if letter.producer else ""),
        ("producer", letter.producer),
        ("key", letter.key or ""),
        ("headers", ", ".join(f"{name}={value}" for name, value in letter.headers.items())),
        ("data", _text(letter)),
    ]
    return [(name, value) for name, value in facts if value]
