"""What a command that reads tables is given: an exported trail, or directories that processes record into."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from zkms_spark.errors import NoSpark, NoTrail

from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure
from zkms.cli.output import plural
from zkms.cli.progress import Progress
from zkms.trail.event import OPEN_SUFFIX, SUFFIX
from zkms.trail.export.export import Exporter, NothingRecorded, find, size_of


@contextmanager
def failures() -> Iterator[None]:
    """Failures of the analysis as exit codes."""
    try:
        yield
    except NoTrail as error:
        raise Failure(str(error), Exit.NO_TRAIL) from error
    except NoSpark as error:
        raise Failure(str(error), Exit.NO_SPARK) from error


def check_directory(name: str) -> None:
    """`Failure` if there is no such directory."""
    if not Path(name).is_dir():
        message = f"there is no directory {name!r}: give the one that was passed as trail= or --trail"
        raise Failure(message, Exit.NO_TRAIL)


@contextmanager
def exported(directories: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """Where the Parquet files are, what was given or for a block what is made of the lines in it; and what is wrong.

    Processes of one name are left to the analysis, which finds them in every trail.
    """
    raw = []
    for directory in directories:
        if "://" in directory:
            continue
        check_directory(directory)
        raw += [directory] if any(Path(directory).glob(f"*{SUFFIX}*")) else []
    if not raw:
        if len(directories) > 1:
            raise Failure("give one exported trail, or several directories that processes record into", Exit.USAGE)
        place = directories[0]
        if "://" not in place and next(Path(place).rglob("*.parquet"), None) is None:  # sooner than Spark would say it
            raise Failure(f"there is no trail in {place!r}: nothing was recorded or exported there yet", Exit.NO_TRAIL)
        yield place, []
        return
    if len(raw) != len(directories):
        raise Failure("some of these are exported trails and some are not: export all into one first", Exit.USAGE)
    with tempfile.TemporaryDirectory(prefix="zkms-report-") as target:
        try:
            files = find(raw)
        except NothingRecorded as error:
            raise Failure(str(error), Exit.NO_TRAIL) from error
        with Progress("bytes", sum(map(size_of, files))) as progress:
            summary = Exporter(target, progress.add).run(files)
        if not summary.files:
            for warning in summary.warnings:
                click.echo(f"Warning: {warning}", err=True)
            names = ", ".join(raw)
            still = f": {plural(summary.open, 'file')} ({OPEN_SUFFIX}) still being written" if summary.open else ""
            raise Failure(f"there is no finished trail in {names}{still}", Exit.NO_TRAIL)
        yield target, [warning for warning in summary.warnings if warning not in summary.namesakes]
