"""`zkms trail`: what happened to messages, from the files that processes leave to tables that can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zkms.cli.analyse.follow import follow
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import JSON_HELP, printing, seconds_option, trails_option
from zkms.cli.output import plural, print_json
from zkms.cli.progress import Progress

if TYPE_CHECKING:
    from zkms.trail.export.export import ExportSummary


@click.group()
def trail() -> None:
    """What happened to messages: export what processes have recorded, follow it live, or generate some for tests.

    A process records with connect(trail=DIR), a command with --trail DIR or ZKMS_TRAIL.
    """


trail.add_command(follow)


@trail.command()
@trails_option("Directory that processes record into; may be given repeatedly.")
@click.option(
    "--to", metavar="DIR", required=True, help="Where the tables go: a directory, or a URL that fsspec knows."
)
@printing
def export(directories: tuple[str, ...], to: str, json_: bool) -> None:
    """Bring finished files of trails into Parquet, by date and hour; each file once.

    Can be killed and run again at any time: what was exported is passed over, what is half done is done again. Files
    that a living process still writes to are left for the next time, those of a killed one are taken as they are. The
    exit code is 7 if something was amiss: lines that are no events (kept in DIR/_quarantine), files of a newer version,
    two processes of one name.
    """
    try:
        from zkms.trail.export.export import (  # brings pyarrow, which help needs not
            Exporter,
            NothingRecorded,
            find,
            size_of,
        )
    except ModuleNotFoundError as error:
        raise _needs(error) from error

    try:
        files = find(directories)
    except NothingRecorded as error:
        raise Failure(str(error), Exit.NO_TRAIL) from error
    with Progress("bytes", sum(map(size_of, files))) as progress:
        summary = Exporter(to, progress.add).run(files)
    for warning in summary.warnings:
        click.echo(f"Warning: {warning}", err=True)
    if json_:
        print_json({name: getattr(summary, name) for name in summary.__struct_fields__})
    else:
        click.echo(_sentence(summary, to))
    if summary.warnings:
        raise click.exceptions.Exit(Exit.AMISS)


@trail.command()
@click.option("--events", type=click.IntRange(min=1), required=True, help="About how many events.")
@click.option("--out", metavar="DIR", required=True, help="Where it goes: a directory that is new or empty.")
@click.option(
    "--faults",
    metavar="KIND=COUNT,...",
    default="",
    help="Violations to plant: lost, missed, duplicated, out_of_order, early, after_expiry, not_owner, or all.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same gives the same trail.")
@seconds_option("--skew", default=0.2, help="How far clocks may be off.")
@click.option(
    "--features", is_flag=True, help="With selectors, priorities and patterns: some ten per cent more events."
)
@click.option("--parquet", is_flag=True, help="Write tables as an export would, instead of files as processes do.")
@click.option("--json", "json_", is_flag=True, help=JSON_HELP)
def generate(
    events: int, out: str, faults: str, seed: int, skew: float, features: bool, parquet: bool, json_: bool
) -> None:
    """Write a realistic trail with known violations, for tests and benchmarks.

    Nodes with clocks of their own, live, durable and group subscriptions, hot keys, slow consumers, gaps, purges,
    retries, delays, expiry; a node that is killed, and one whose trail lacks lines. DIR/planted.json names every
    violation that was planted; there are no others.

    \b
    Example:
      zkms trail generate --events 1000000 --out /tmp/trail --faults all=3 --parquet
    """
    try:
        from zkms.trail.generate.generate import Generator  # brings numpy and pyarrow
        from zkms.trail.generate.planting import parse_faults
    except ModuleNotFoundError as error:
        raise _needs(error) from error

    with Progress("events", events) as progress:
        done = Generator(
            events,
            out,
            faults=parse_faults(faults),
            seed=seed,
            skew=skew,
            features=features,
            parquet=parquet,
            progress=progress.add,
        ).run()
    if json_:
        print_json(done)
    else:
        planted = plural(len(done.violations), "violation")
        click.echo(f"Wrote {plural(done.events, 'event')} with {planted} to {out}; planted.json names them.")


def _needs(error: ModuleNotFoundError) -> Failure:
    return Failure(f"'zkms trail' needs {error.name}: pip install 'zkms[trail]'")


def _sentence(s: ExportSummary, to: str) -> str:
    parts = [f"Exported {plural(s.files, 'file')} with {plural(s.rows, 'event')} to {to}"]
    if s.earlier:
        parts.append(f"{plural(s.earlier, 'file')} had been exported before")
    if s.open:
        parts.append(f"{plural(s.open, 'file')} still being written, left for the next time")
    if s.unclean:
        parts.append(f"{plural(s.unclean, 'file')} of processes that were killed")
    if s.lost:
        parts.append(f"{plural(s.lost, 'line')} known to be missing")
    return "; ".join(parts) + "."
