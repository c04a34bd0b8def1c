"""`zkms report`: Spark's analysis of a trail as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zkms.cli.analyse.exported import exported
from zkms.cli.analyse.work import Work
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure, set_up_logging
from zkms.cli.options import JSON_HELP, VERBOSE_HELP
from zkms.cli.output import print_json

if TYPE_CHECKING:
    from zkms_spark.analysis import Analysis
    from zkms_spark.jobs import Tables


@click.command()
@click.option(
    "--trail",
    "directories",
    metavar="DIR",
    envvar="ZKMS_TRAIL",
    show_envvar=True,
    multiple=True,
    required=True,
    help="What processes record into (may be given repeatedly), or what 'zkms trail export' wrote: a directory or URL.",
)
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Spark's master.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="Where the page goes.",
)
@click.option(
    "--tables", metavar="DIR", help="Also write every job's whole table, by the minute, to DIR/JOB: a URL too."
)
@click.option(
    "--job", "names", metavar="NAME", multiple=True, help="With --tables: only this job's, and no page; repeatable."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "json", "csv"]),
    default="parquet",
    show_default=True,
    help="Of the tables.",
)
@click.option("--strict", is_flag=True, help="Exit code 7 also unless the audit says that all guarantees were kept.")
@click.option("--json", "json_", is_flag=True, help=JSON_HELP)
@click.option("-v", "--verbose", count=True, help=VERBOSE_HELP)
@click.pass_context
def report(
    ctx: click.Context,
    directories: tuple[str, ...],
    master: str,
    out: Path,
    tables: str | None,
    names: tuple[str, ...],
    form: str,
    strict: bool,
    json_: bool,
    verbose: int,
) -> None:
    """Say what every message did: latency, lag, storms, and whether the guarantees were kept, in one HTML file.

    Runs on this machine, on your Java or the one that 'pip install zkms[spark]' brings, or on a cluster's --master,
    which must be able to read the trail and to write the tables.

    The exit code is 7 if part of the trail is bad or doubtful, as 'zkms trail export' has it; the report is made of the
    rest, and says so.

    \b
    Examples:
      zkms report --trail /var/lib/zkms/trail --strict
      zkms report --trail exported --tables tables --job latency --job lag
    """
    set_up_logging(verbose)
    if names and (tables is None or strict):
        raise Failure("--job needs --tables, and no --strict: that is for the whole report", Exit.USAGE)
    wanted = None if tables is None else _tables(tables, form, names)
    if names and wanted is not None:
        analysis = make_tables(directories, master, wanted)
        _tell_tables(analysis, wanted, json_)
    else:
        check_out(out)
        analysis = make_report(directories, master, out, wanted)
        _tell(analysis, out, wanted, json_)
    doubtful = _doubts(analysis)
    for doubt in doubtful:
        click.echo(f"Warning: {doubt}", err=True)
    if doubtful or (strict and analysis.overall != "kept"):
        ctx.exit(Exit.AMISS)


def _tables(directory: str, form: str, names: tuple[str, ...]) -> Tables:
    with _needs_spark():
        from zkms_spark.errors import AnalysisError
        from zkms_spark.jobs import Tables

    try:
        return Tables(directory, form, names)
    except AnalysisError as error:
        raise Failure(str(error), Exit.USAGE) from error


def check_out(out: Path) -> None:
    """`Failure` if a page cannot go there."""
    if not out.parent.is_dir():
        raise Failure(f"there is no directory {str(out.parent)!r} for the report", Exit.USAGE)


def make_report(directories: tuple[str, ...], master: str, out: Path, tables: Tables | None = None) -> Analysis:
    """Analyse what was recorded, and write the page, and tables."""
    with _needs_spark(), exported(directories) as (trail, warnings), _spark(trail, master, tables) as (spark, work):
        from zkms_spark.analysis import analyse
        from zkms_spark.report.report import render

        analysis = analyse(spark, trail, work.begin, tables)
        analysis.source = ", ".join(directories)  # what was asked for, not where it was exported to on the way
        analysis.warnings = warnings
        work.begin("page")
        _write(out, render(analysis))
    return analysis


def make_tables(directories: tuple[str, ...], master: str, tables: Tables) -> Analysis:
    """Write these tables of what was recorded; what comes back says who recorded it, and no more."""
    with _needs_spark(), exported(directories) as (trail, warnings), _spark(trail, master, tables) as (spark, work):
        from zkms_spark import analysis

        made = analysis.make_tables(spark, trail, tables, work.begin)
        made.warnings = warnings
    return made


@contextmanager
def _needs_spark() -> Iterator[None]:
    """Failures of the analysis as exit codes."""
    try:
        from zkms_spark.errors import NoSpark, NoTrail
    except ModuleNotFoundError as error:
        raise _needs(error) from error
    try:
        yield
    except ModuleNotFoundError as error:
        raise _needs(error) from error
    except NoTrail as error:
        raise Failure(str(error), Exit.NO_TRAIL) from error
    except NoSpark as error:
        raise Failure(str(error), Exit.NO_SPARK) from error


def _needs(error: ModuleNotFoundError) -> Failure:
    return Failure(f"a report needs {error.name}: pip install 'zkms[spark]'")


@contextmanager
def _spark(trail: str, master: str, tables: Tables | None) -> Iterator[tuple[Any, Work]]:
    """Spark for a block, and who tells what it is at."""
    from zkms_spark.analysis import STAGES
    from zkms_spark.session import SMALL_BYTES, open_session

    local = Path(trail)
    small = local.is_dir() and sum(file.stat().st_size for file in local.rglob("*.parquet")) < SMALL_BYTES
    with Work(len(STAGES) + 2 + (0 if tables is None else len(tables.names))) as work:
        work.begin("start")
        with open_session(master, small=small) as spark:
            if tables is not None:
                tables.check(spark)
            work.watch(spark)
            try:
                yield spark, work
            finally:
                work.watch(None)


def _write(out: Path, page: str) -> None:
    """Whole or not at all."""
    half = out.with_name(f".{out.name}.half")
    try:
        half.write_text(page, encoding="utf-8")
        half.replace(out)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise Failure(f"cannot write {out}: {error.strerror or error}") from error


def _doubts(analysis: Analysis) -> list[str]:
    from zkms_spark.report.summary import doubts

    return doubts(analysis)


def _tell(analysis: Analysis, out: Path, tables: Tables | None, json_: bool) -> None:
    if json_:
        print_json(_figures(analysis, out) | _places(tables))
        return
    for line in told(analysis):
        click.echo(line)
    if tables is not None:
        click.echo(f"Tables: {tables.directory}")
    click.echo(f"Report: {out.resolve()}")


def _tell_tables(analysis: Analysis, tables: Tables, json_: bool) -> None:
    if json_:
        print_json({"events": analysis.events, "warnings": _doubts(analysis)} | _places(tables))
        return
    for name in tables.names:
        click.echo(tables.place(name))


def _places(tables: Tables | None) -> dict[str, Any]:
    return {} if tables is None else {"tables": {name: tables.place(name) for name in tables.names}}


def told(analysis: Analysis) -> list[str]:
    """The report in a few lines."""
    from zkms_spark.report.summary import headline, reasons, sentences

    return [headline(analysis), *(f"  {line}" for line in [*reasons(analysis), *sentences(analysis)])]


def _figures(analysis: Analysis, out: Path) -> dict[str, Any]:
    return {
        "verdict": analysis.overall,
        "guarantees": [vars(verdict) for verdict in analysis.verdicts],
        "events": analysis.events,
        "messages": analysis.messages,
        "topics": analysis.topics,
        "subscriptions": analysis.subscriptions,
        "nodes": analysis.nodes,
        "findings": analysis.findings,
        "seconds": analysis.seconds,
        "warnings": _doubts(analysis),
        "report": str(out.resolve()),
    }
