"""`zkms report`: Spark's analysis of a trail as one HTML file."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.options import printing, trails_option
from zkms.cli.output import print_json

if TYPE_CHECKING:
    from zkms_spark.analysis import Analysis
    from zkms_spark.jobs import Tables


@click.command()
@trails_option(
    "What processes record into (may be given repeatedly), or what 'zkms trail export' wrote: a directory or URL."
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
@printing
def report(
    directories: tuple[str, ...],
    master: str,
    out: Path,
    tables: str | None,
    names: tuple[str, ...],
    form: str,
    strict: bool,
    json_: bool,
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
    if names and (tables is None or strict):
        raise Failure("--job needs --tables, and no --strict: that is for the whole report", Exit.USAGE)
    if not names:
        check_out(out)
    work = spark_report()
    wanted = None if tables is None else work.tables_of(tables, form, names)
    if names and wanted is not None:
        analysis = work.make_tables(directories, master, wanted)
        _tell_tables(analysis, wanted, json_)
    else:
        analysis = work.make_report(directories, master, out, wanted)
        _tell(analysis, out, wanted, json_)
    doubtful = work.doubts(analysis)
    for doubt in doubtful:
        click.echo(f"Warning: {doubt}", err=True)
    if doubtful or (strict and analysis.overall != "kept"):
        raise click.exceptions.Exit(Exit.AMISS)


def check_out(out: Path) -> None:
    """`Failure` if a page cannot go there."""
    if not out.parent.is_dir():
        raise Failure(f"there is no directory {str(out.parent)!r} for the report", Exit.USAGE)


def spark_report() -> ModuleType:
    """The part of this command that needs Spark; `Failure` says what is missing."""
    try:
        from zkms.cli.analyse import spark_report
    except ModuleNotFoundError as error:
        raise Failure(f"a report needs {error.name}: pip install 'zkms[spark]'") from error
    return spark_report


def _tell(analysis: Analysis, out: Path, tables: Tables | None, json_: bool) -> None:
    if json_:
        print_json(spark_report().figures(analysis, out) | _places(tables))
        return
    for line in spark_report().told(analysis):
        click.echo(line)
    if tables is not None:
        click.echo(f"Tables: {tables.directory}")
    click.echo(f"Report: {out.resolve()}")


def _tell_tables(analysis: Analysis, tables: Tables, json_: bool) -> None:
    if json_:
        print_json({"events": analysis.events, "warnings": spark_report().doubts(analysis)} | _places(tables))
        return
    for name in tables.names:
        click.echo(tables.place(name))


def _places(tables: Tables | None) -> dict[str, Any]:
    return {} if tables is None else {"tables": {name: tables.place(name) for name in tables.names}}
