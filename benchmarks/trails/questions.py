"""The same questions as the jobs answer them, and what can be compared with the straightforward answers.

The four questions and no more: neither version corrects clocks, or asks whether a gap, a purge or an ack accounts for a
message that did not arrive. `everything` in contestant.py is all that a report needs.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from zkms_spark import duplicates, order, traffic
from zkms_spark.effort import plainly
from zkms_spark.entries import entries, segments, wanted
from zkms_spark.ledger import PAIR, balance, dropped, handed_over, stored

Answers = dict[str, Any]
ACCOUNTS = ("redelivered", "expired", "dead")
"""What accounts for a message that was not delivered, as in the straightforward version."""


def answer(trail: DataFrame) -> tuple[dict[str, float], Answers]:
    """Seconds by step, and the answers."""
    with ThreadPoolExecutor(1) as pool:  # its tasks take the cores where the other questions leave them free
        latency = pool.submit(_latency, trail)
        steps, answers = _others(trail)
        began = time.monotonic()
        answers["latency"] = latency.result()
        return steps | {"latency": time.monotonic() - began}, answers


def _latency(trail: DataFrame) -> int:
    rows = traffic.latency(traffic.delays(trail), ["topic", "sub", "step"]).collect()
    return sum(row.messages for row in rows)


def _others(trail: DataFrame) -> tuple[dict[str, float], Answers]:
    spark = trail.sparkSession
    moments = [time.monotonic()]
    heard = handed_over(trail).localCheckpoint()
    sheet = balance(stored(trail), heard, dropped(trail)).localCheckpoint()
    moments.append(time.monotonic())
    found = entries(trail, wanted(sheet).localCheckpoint(), None, ACCOUNTS).localCheckpoint()
    with plainly(spark, found.count()):
        gone = segments(found).where("stored > 0 and delivered = 0 and elsewhere = 0")
        lost = gone.agg(F.coalesce(F.sum(F.col("past") - F.col("first")), F.lit(0)).alias("messages")).first()
        assert lost is not None  # noqa: S101 - an aggregate has a row
        pairs = found.select("pair", *PAIR).distinct()
        repeated = duplicates.repeats(found).join(pairs, "pair").localCheckpoint()
        twice = repeated.collect()
    moments.append(time.monotonic())
    late: list[Any] = []
    lanes = order.unruly(heard).localCheckpoint()
    if not lanes.isEmpty():
        late = order.steps_back(trail, lanes, spark.createDataFrame([], "pair bigint, run string, i bigint")).collect()
    moments.append(time.monotonic())
    names = ("ledger", "loss and duplicates", "order")
    steps = {name: moments[place + 1] - moments[place] for place, name in enumerate(names)}
    return steps, {
        "lost": lost.messages,
        "duplicated": _ids(twice),
        "out_of_order": _ids(late),
    }


def _ids(rows: list[Any]) -> list[str]:
    return sorted(
        f"{row.topic} {row.sub} {row.producer}:{number}" for row in rows for number in range(row["first"], row["past"])
    )
