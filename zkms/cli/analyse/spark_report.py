"""What of `zkms report` needs Spark: imported as a whole, when the command is at work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zkms_spark import analysis as analyses
from zkms_spark.analysis import STAGES, Analysis
from zkms_spark.errors import AnalysisError
from zkms_spark.jobs import Tables
from zkms_spark.report.report import render
from zkms_spark.report.summary import doubts, headline, reasons, sentences
from zkms_spark.session import SMALL_BYTES, open_session

from zkms.cli.analyse.exported import exported, failures
from zkms.cli.analyse.work import Work
from zkms.cli.exit_codes import Exit
from zkms.cli.failure import Failure

__all__ = ["doubts", "figures", "make_report", "make_tables", "tables_of", "told"]


def tables_of(directory: str, form: str, names: tuple[str, ...]) -> Tables:
    """The tables that were asked for."""
    try:
        return Tables(directory, form, names)
    except AnalysisError as error:
        raise Failure(str(error), Exit.USAGE) from error


def make_report(directories: tuple[str, ...], master: str, out: Path, tables: Tables | None = None) -> Analysis:
    """Analyse what was recorded, and write the page, and tables."""
    with failures(), exported(directories) as (trail, warnings), _spark(trail, master, tables) as (spark, work):
        analysis = analyses.analyse(spark, trail, work.begin, tables)
        analysis.source = ", ".join(directories)  # what was asked for, not where it was exported to on the way
        analysis.warnings = warnings
        work.begin("page")
        _write(out, render(analysis))
    return analysis


def make_tables(directories: tuple[str, ...], master: str, tables: Tables) -> Analysis:
    """Write these tables of what was recorded; what comes back says who recorded it, and no more."""
    with failures(), exported(directories) as (trail, warnings), _spark(trail, master, tables) as (spark, work):
        made = analyses.make_tables(spark, trail, tables, work.begin)
        made.warnings = warnings
    return made


@contextmanager
def _spark(trail: str, master: str, tables: Tables | None) -> Iterator[tuple[Any, Work]]:
    """Spark for a block, and who tells what it is at."""
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


def told(analysis: Analysis) -> list[str]:
    """The report in a few lines."""
    return [headline(analysis), *(f"  {line}" for line in [*reasons(analysis), *sentences(analysis)])]


def figures(analysis: Analysis, out: Path) -> dict[str, Any]:
    """The report in numbers."""
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
        "warnings": doubts(analysis),
        "report": str(out.resolve()),
    }
