"""The analysis as a job for `spark-submit`: the session is the one that it made, the page goes where --out says.

    spark-submit --master spark://HOST:7077 --py-files dist/zkms_spark.zip spark/submit.py --trail s3a://... --out FILE
    spark-submit ... spark/submit.py --trail s3a://... --tables s3a://... --job latency --job lag

Needs pyspark on the driver and nothing else: the zip carries this package and plotly.js. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from zkms_spark import gateway
from zkms_spark.analysis import analyse, make_tables
from zkms_spark.errors import AnalysisError
from zkms_spark.jobs import FORMATS, JOBS, Tables
from zkms_spark.report.report import render
from zkms_spark.report.summary import doubts
from zkms_spark.session import attach


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="zkms_spark", description="Analyse an exported trail into one HTML file, or into tables."
    )
    parser.add_argument("--trail", required=True, metavar="URL", help="what `zkms trail export` wrote")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the page goes, on the driver")
    parser.add_argument("--tables", metavar="URL", help="where whole tables go, one directory for each job")
    parser.add_argument(
        "--job", action="append", default=[], choices=[*JOBS], help="only this one, repeatable; no page"
    )
    parser.add_argument("--format", default=FORMATS[0], choices=FORMATS, help="of the tables")
    options = parser.parse_args(arguments)
    if options.job and options.tables is None:
        parser.error("--job needs --tables")
    if options.out is None and not options.job:
        parser.error("say where the page goes with --out, or which tables with --tables and --job")
    tables = None if options.tables is None else Tables(options.tables, options.format, options.job)
    spark = attach()
    try:
        said = _run(spark, options, tables)
        said["executors"] = gateway.executors(spark)
    except AnalysisError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    print(json.dumps(said))
    return 0


def _run(spark: SparkSession, options: argparse.Namespace, tables: Tables | None) -> dict[str, Any]:
    written = {} if tables is None else {"tables": {name: tables.place(name) for name in tables.names}}
    if tables is not None:
        tables.check(spark)
        if options.job:
            make_tables(spark, options.trail, tables)
            return written
    analysis = analyse(spark, options.trail, tables=tables)
    options.out.write_text(render(analysis), encoding="utf-8")
    counted = {verdict.violation: verdict.violations for verdict in analysis.verdicts}
    said = {"verdict": analysis.overall, "events": analysis.events, "violations": counted}
    return said | {"doubts": doubts(analysis)} | written
