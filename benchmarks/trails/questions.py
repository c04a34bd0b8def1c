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
from zkms_spark.audit import duplicates, order
from zkms_spark.audit.entries import entries, narrowed, segments, wanted
from zkms_spark.audit.ledger import PAIR, balance, dropped, handed_over, stored
from zkms_spark.effort import plainly, steadily, together
from zkms_spark.schema import empty
from zkms_spark.traffic import traffic

Answers = dict[str, Any]
ACCOUNTS = ("redelivered", "expired", "dead")
"""What accounts for a message that was not delivered, as in the straightforward version."""

ASKED = (
    *("event", "run", "node", "i", "t", "at", "topic", "producer", "priority", "seq", "n", "places", "keys"),
    *("sub", "subs", "kind", "partition", "epoch", "zxid"),
)
"""What these questions are about: plans are the smaller for it."""
HEARD = ("lane", "pair", "block", "kind", "delivered", "delivered_print", "delivered_reach", "steps_back")
"""What is wanted of the deliveries: no evidence is shown, so when and where each block began and ended is not."""


def answer(trail: DataFrame) -> tuple[dict[str, float], Answers]:
    """Seconds by step, and the answers. What does not need one another is asked at once: there are cores to fill."""
    moments = [time.monotonic()]
    with steadily(trail), ThreadPoolExecutor(2) as pool:
        trail = trail.select(*ASKED)
        put_in = pool.submit(lambda: stored(trail).localCheckpoint())
        latency = pool.submit(_latency, trail)
        heard = handed_over(trail).select(*HEARD).localCheckpoint()
        unruly = pool.submit(lambda: order.unruly(heard).localCheckpoint())
        sheet = balance(put_in.result(), heard, dropped(trail)).localCheckpoint()
        moments.append(time.monotonic())
        chosen, lanes = wanted(sheet).localCheckpoint(), unruly.result()
        near = narrowed(trail, chosen, lanes)
        moments.append(time.monotonic())
        late = pool.submit(_late, near, lanes)
        lost, doubled = _lost_and_doubled(near, chosen)
        moments.append(time.monotonic())
        answers = {"latency": latency.result(), "lost": lost, "out_of_order": _ids(late.result())}
        moments.append(time.monotonic())
        answers["duplicated"] = _ids(_repeated(doubled))
    moments.append(time.monotonic())
    names = ("ledger", "suspects", "loss", "order and latency", "duplicates")
    return {name: moments[place + 1] - moments[place] for place, name in enumerate(names)}, answers


def _latency(trail: DataFrame) -> int:
    rows = traffic.latency(traffic.delays(trail), ["topic", "sub", "step"]).collect()
    return sum(row.messages for row in rows)


def _lost_and_doubled(near: DataFrame, chosen: DataFrame) -> tuple[int, DataFrame]:
    found = together(entries(near, chosen, None, ACCOUNTS).localCheckpoint())
    stretches = segments(found).localCheckpoint()
    gone = stretches.where("stored > 0 and delivered = 0 and elsewhere = 0")
    lost = gone.agg(F.coalesce(F.sum(F.col("past") - F.col("first")), F.lit(0)).alias("messages")).first()
    assert lost is not None  # noqa: S101 - an aggregate has a row
    return lost.messages, duplicates.doubled(found, stretches).localCheckpoint()


def _repeated(doubled: DataFrame) -> list[Any]:
    with plainly(doubled.sparkSession, doubled.count()):
        pairs = doubled.select("pair", *PAIR).distinct()
        return duplicates.repeats(doubled).join(pairs, "pair").collect()


def _late(near: DataFrame, lanes: DataFrame) -> list[Any]:
    none = empty(near.sparkSession, "pair bigint, run string, i bigint")
    return order.steps_back(near, lanes, none).collect()


def _ids(rows: list[Any]) -> list[str]:
    return sorted(
        f"{row.topic} {row.sub} {row.producer}:{number}" for row in rows for number in range(row["first"], row["past"])
    )
