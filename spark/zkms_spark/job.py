"""The analysis as a job for `spark-submit`: the session is the one that it made, the page goes where --out says.

    spark-submit --master spark://HOST:7077 --py-files dist/zkms_spark.zip spark/submit.py --trail s3a://... --out FILE

Needs pyspark on the driver and nothing else: the zip carries this package and plotly.js. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from zkms_spark.analysis import analyse
from zkms_spark.errors import AnalysisError
from zkms_spark.report import render
from zkms_spark.session import attach


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="zkms_spark", description="Analyse an exported trail into one HTML file.")
    parser.add_argument("--trail", required=True, metavar="URL", help="what `zkms trail export` wrote")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE", help="where the page goes, on the driver")
    options = parser.parse_args(arguments)
    spark = attach()
    try:
        analysis = analyse(spark, options.trail)
        options.out.write_text(render(analysis), encoding="utf-8")
        executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # the driver counts as one
    except AnalysisError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    finally:
        spark.stop()
    counted = {verdict.violation: verdict.violations for verdict in analysis.verdicts}
    print(
        json.dumps(
            {"verdict": analysis.overall, "events": analysis.events, "executors": executors, "violations": counted}
        )
    )
    return 0
