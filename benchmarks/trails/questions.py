"""The same questions as the jobs answer them, and what can be compared with the straightforward answers."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from zkms_spark import traffic
from zkms_spark.audit import audit
from zkms_spark.ground import explore
from zkms_spark.schema import happened

Answers = dict[str, Any]


def answer(trail: DataFrame) -> tuple[dict[str, float], Answers]:
    """Seconds by step, and the answers.

    The survey is part of it: it says how far clocks are apart, and which lines are missing. Deadlines and owners are
    not: they were not asked for.
    """
    began = time.monotonic()
    ground = explore(trail)
    surveyed = time.monotonic()
    asked = dataclasses.replace(ground.known, has_due=False, has_expiry=False, has_epochs=False)
    found = audit(ground.trail, ground.recorded, asked, ground.holes, ground.margin, ground.notes)
    findings = found.findings.where("verdict = 'violation'").collect()
    gone = found.absent.agg(F.coalesce(F.sum("messages"), F.lit(0)).alias("messages")).first()
    assert gone is not None  # noqa: S101 - an aggregate has a row
    audited = time.monotonic()
    latencies = traffic.latency(traffic.cube(happened(ground.trail, "delivered")), ["topic", "sub", "step"]).collect()
    ended = time.monotonic()
    steps = {"survey": surveyed - began, "audit": audited - surveyed, "latency": ended - audited}
    return steps, {
        "latency": sum(row.messages for row in latencies),
        "lost": gone.messages,
        "duplicated": _ids(findings, "duplicated"),
        "out_of_order": _ids(findings, "out_of_order"),
    }


def _ids(findings: list[Any], violation: str) -> list[str]:
    return sorted(
        f"{row.topic} {row.sub} {row.producer}:{number}"
        for row in findings
        if row.violation == violation
        for number in range(row["first"], row["last"] + 1)
    )
