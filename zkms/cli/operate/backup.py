"""`zkms backup` and `zkms restore`: what is kept, into one file and back."""

from __future__ import annotations

from pathlib import Path

import click

from zkms.backup.backup import back_up
from zkms.backup.restore import restore as restore_file
from zkms.backup.verify import BackupSummary, examine
from zkms.cli.connection import inspect
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import CommandSettings, settings
from zkms.cli.output import clock, escape, plural, print_json
from zkms.cli.progress import Progress
from zkms.names import new_client_id

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("file", type=FILE)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@settings
def backup(settings: CommandSettings, file: Path, force: bool) -> None:
    """Write what is kept into FILE: durable subscriptions, groups, queues, delayed messages, dead letters.

    Everybody may go on meanwhile; each queue is consistent by itself. FILE holds messages: only you can read it. What
    live subscriptions have is not in it. What you are not allowed to read is left out, told on stderr, and makes the
    exit code 7.
    """
    if file.exists() and not force:
        raise Failure(f"{file} is there already: choose another name, or pass --force", Exit.USAGE)
    with inspect(settings) as inspector, Progress("records") as progress:
        summary = back_up(inspector.session, inspector.tree, file, progress.add)
    if settings.json:
        print_json(summary)
    else:
        click.echo(f"Backed up {_contents(summary)} into {file} ({summary.bytes:,} bytes).")
    if summary.unreadable:
        click.echo(_left_out(summary), err=True)
        raise click.exceptions.Exit(Exit.AMISS)


@click.command()
@click.argument("file", type=FILE)
@click.option("--dry-run", is_flag=True, help="Only check the file, and say what is in it.")
@click.option("--add", is_flag=True, help="Also if something is kept below the root already; that is left as it is.")
@settings
def restore(settings: CommandSettings, file: Path, dry_run: bool, add: bool) -> None:
    """Put back what is in FILE: exactly what was not acked, in order.

    The root has to be empty of durable subscriptions, groups, delayed messages and dead letters, unless --add is given.
    FILE is checked as a whole before anything is written. A restore that was cut short is run again: it does what is
    left.
    """
    summary = examine(file).summary
    if summary.unreadable:
        click.echo(_left_out(summary), err=True)
    if dry_run:
        if settings.json:
            print_json(summary)
        else:
            click.echo(f"{file} is whole: {_contents(summary)}, of {escape(summary.root)} at {clock(summary.at)}.")
        return
    with inspect(settings) as inspector, Progress("records", summary.records) as progress:
        done = restore_file(
            inspector.session, inspector.tree, file, add=add, client=new_client_id(), progress=progress.add
        )
    if settings.json:
        print_json(done)
        return
    click.echo(
        f"Restored {plural(done.subscriptions, 'subscription')} with {plural(done.entries, 'entry', 'entries')}, "
        f"{plural(done.delayed, 'delayed message')}, {plural(done.letters, 'dead letter')}."
    )
    for name in done.kept:
        click.echo(f"Left as it is, because it exists: {escape(name)}.", err=True)
    if done.again:
        click.echo("It was restored here before: its delayed messages and dead letters were not put back.", err=True)


def _contents(summary: BackupSummary) -> str:
    return (
        f"{plural(summary.subscriptions, 'subscription')} with {plural(summary.messages, 'message')} to be read, "
        f"{plural(summary.delayed, 'delayed message')}, {plural(summary.letters, 'dead letter')}"
    )


def _left_out(summary: BackupSummary) -> str:
    more = ", ..." if summary.unreadable > len(summary.such_as) else ""
    paths = ", ".join(map(escape, summary.such_as))
    return f"Not in the backup, for want of permission to read: {plural(summary.unreadable, 'znode')}: {paths}{more}."
