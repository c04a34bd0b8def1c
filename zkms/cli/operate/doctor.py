"""`zkms doctor`: what is well, what is not, and what to do about it."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator

import click

from zkms.cli.connection import inspect, inspection_config
from zkms.cli.exit_codes import Exit
from zkms.cli.operate.checks import Finding
from zkms.cli.operate.checks.security import check_secrets, check_way
from zkms.cli.operate.checks.server import check_servers, check_speed
from zkms.cli.operate.checks.tree import check_tree
from zkms.cli.options import CommandSettings, settings
from zkms.cli.output import escape, plural, print_json
from zkms.errors import ConnectionLost, Unauthorised

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
WIDEST = 120


@click.command()
@settings
def doctor(settings: CommandSettings) -> None:
    """Check ZooKeeper and what zkms has in it, and say what to do.

    Looks at the servers' versions, limits and speed, at what is open to whom, and at the cleaner, orphans and backlog
    below the root. Changes nothing, and lists no long queue. The exit code is 1 if there is a problem; warnings do not
    count.
    """
    findings = []
    for finding in _examine(settings):
        findings.append(finding)
        if not settings.json:
            _print(finding)
    problems, warnings = (sum(f.level == level for f in findings) for level in ("problem", "warning"))
    if settings.json:
        print_json(findings)
    else:
        click.echo(f"\n{plural(problems, 'problem')}, {plural(warnings, 'warning')}.")
    raise click.exceptions.Exit(Exit.ERROR if problems else Exit.OK)


def _examine(settings: CommandSettings) -> Iterator[Finding]:
    secrets = list(check_secrets())
    yield from secrets
    if any(finding.level == "problem" for finding in secrets):
        yield Finding(
            "session", "problem", "not tried with secrets that others may know", "change them, then chmod 600"
        )
        return
    config = inspection_config(settings)
    yield from check_servers(config)
    yield from check_way(config)
    try:
        with inspect(settings) as inspector:
            yield from check_speed(inspector)
            yield from check_tree(inspector)
    except ConnectionLost as error:
        yield Finding("session", "problem", str(error), "without one nothing more can be checked")
    except Unauthorised as error:
        yield Finding("access", "problem", str(error), "these credentials have no role in this tree")


def _print(finding: Finding) -> None:
    """As soon as it is known: some checks take a while."""
    click.echo(
        f"{click.style(f'{finding.level:<8}', fg=COLOURS[finding.level])} {_indented(finding.check, finding.finding)}"
    )
    if finding.advice:
        click.echo(click.style(f"{'':9}{_indented('', '→ ' + finding.advice)}", dim=True))


def _indented(name: str, text: str) -> str:
    columns = min(shutil.get_terminal_size().columns, WIDEST)
    indent = " " * 34
    lines = textwrap.wrap(escape(text), max(columns - len(indent), 30), break_long_words=False) or [""]
    return f"{escape(name):<24} " + f"\n{indent}".join(lines)
