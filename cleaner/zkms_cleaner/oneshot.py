"""`--once` and `--dry-run`: one look at the tree, with or without consequences."""

from __future__ import annotations

import time
from contextlib import closing

import click

from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.output import plural, print_json, print_table
from zkms.config import Config
from zkms.errors import NodeMissing, TransactionFailed
from zkms.trail.recorder import recording
from zkms.tree.layout import ensure_tree
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session
from zkms_cleaner.election import Election, Lead
from zkms_cleaner.orphans import OrphanFinding
from zkms_cleaner.sweep import Sweeper


def dry_run(config: Config, *, grace: float, json: bool, unused_after: float | None = None) -> None:
    """Print what would be purged and why; nothing is written."""
    with closing(Session(config)) as session:
        session.start()
        tree = Tree(config.root)
        sweeper = Sweeper(session, tree, grace=grace, unused_after=unused_after)
        found = sweeper.find() if _is_there(session, tree) else []
    _show(found, json=json, verb="would be purged")


def once(config: Config, *, grace: float, timeout: float, json: bool, unused_after: float | None = None) -> None:
    """Purge what is orphaned now and still is when the grace is over, and print it."""
    with recording(config.trail, config.client_id) as trail, closing(Session(config)) as session:
        session.start()  # the lead goes with the session
        tree = Tree(config.root)
        election = Election(session, tree, config.client_id)
        sweeper = Sweeper(session, tree, grace=grace, unused_after=unused_after, trail=trail)
        removed = _sweep(sweeper, _lead(election, timeout)) if _is_there(session, tree) else []
    _show(removed, json=json, verb="purged")


def _is_there(session: Session, tree: Tree) -> bool:
    """Whether there is a tree, made by a zkms that is not newer than this one; none is made."""
    try:
        data, _ = session.get(tree.root)
    except NodeMissing:
        data = b""
    if data:
        ensure_tree(session, tree)  # which only looks at the version here
        return True
    click.echo(f"There is no zkms tree at {tree.root}: nothing to clean.", err=True)
    return False


def _sweep(sweeper: Sweeper, lead: Lead) -> list[OrphanFinding]:
    try:
        first = sweeper.sweep(lead)
        if not first.waiting:
            return first.removed
        wait = max(finding.due_in for finding in first.waiting)
        count = plural(len(first.waiting), "orphan")
        click.echo(f"{count} found: waiting {wait:g} s of grace (--grace 0 purges at once).", err=True)
        time.sleep(wait)
        return [*first.removed, *sweeper.sweep(lead).removed]
    except TransactionFailed as error:
        if not lead.lost_by(error):
            raise
        raise Failure("lost the lead in the middle of the sweep: another cleaner will finish it") from error


def _lead(election: Election, timeout: float) -> Lead:
    deadline = time.monotonic() + timeout
    while (lead := election.lead()) is None:
        if not election.wake.wait(max(0.0, deadline - time.monotonic())):
            raise Failure(
                f"{election.leader} leads the cleaners and did not give way within {timeout:g} s; it does the purging, "
                "and nothing was changed here",
                Exit.NOT_IN_TIME,
            )
        election.wake.clear()
    return lead


def _show(findings: list[OrphanFinding], *, json: bool, verb: str) -> None:
    if json:
        fields = ("kind", "path", "reason", "entries", "due_in")
        print_json([{name: getattr(finding, name) for name in fields} for finding in findings])
        return
    rows = [(f.kind, f.path, f.entries, f"after {f.due_in:g} s" if f.due_in else "now", f.reason) for f in findings]
    print_table(("KIND", "PATH", "ENTRIES", "WHEN", "WHY"), rows, empty=f"Nothing {verb}.")
    if rows:
        click.echo(f"{plural(len(rows), 'orphan')} {verb}.")
