"""Steps of the audit by themselves, on trails of a few lines: what is looked into, and what need not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from zkms_spark import effort
from zkms_spark.audit import entries, ledger, order, owners
from zkms_spark.audit.numbers import name_key
from zkms_spark.live.cells import VALUES, cells
from zkms_spark.live.window import CellKey, Window, changes
from zkms_spark.schema import make_trail, read_trail
from zkms_spark.traffic import traffic
from zkms_spark.traffic.lag import lag

pytestmark = pytest.mark.timeout(600)
COMMON = {"run": "r", "node": "n", "host": "h", "topic": "jobs", "producer": "p", "n": 1}


def test_an_ack_is_held_against_the_first_owner_after_its_epoch(spark: Any) -> None:
    """Also where nobody has told of the epoch's own beginning; who acks before the takeover is right."""
    owned = {**COMMON, "event": "subscribed", "sub": "s", "kind": "group", "partition": 0, "t": 0.0}
    acked = {**COMMON, "event": "acked", "sub": "s", "kind": "group", "partition": 0, "t": 0.0}
    begun = [{**owned, "epoch": epoch, "zxid": 10 * epoch, "node": f"n{epoch}"} for epoch in (1, 3, 5)]
    acks = [
        {**acked, "epoch": epoch, "zxid": zxid, "seq": zxid, "i": zxid}
        for epoch, zxid in ((1, 29), (1, 31), (2, 40), (3, 49), (3, 51), (5, 99))
    ]
    elsewhere = {**acks[1], "partition": 1, "i": 200}
    trail = make_trail(spark, [*begun, *acks, elsewhere])
    found = [(row.epoch, row.zxid, row.by.node) for row in owners.usurped(trail, trail).orderBy("zxid").collect()]
    assert found == [(1, 31, "n3"), (2, 40, "n3"), (3, 51, "n5")]


def test_what_a_group_let_expire_needs_no_look_but_of_others_it_does(spark: Any) -> None:
    """How far a live subscription has read is told by its deliveries, so its blocks are looked into."""
    events: list[dict[str, Any]] = []
    for kind in ("group", "live"):
        made = {**COMMON, "topic": kind, "t": 1.0, "at": 1.0}
        events += [{**made, "event": "published", "subs": [kind], "seq": seq, "i": seq, "zxid": seq} for seq in (1, 2)]
        events.append({**made, "event": "delivered", "sub": kind, "kind": kind, "seq": 1, "i": 3})
        events.append({**made, "event": "expired", "sub": kind, "seq": 2, "i": 4})
    trail = make_trail(spark, events)
    sides = ledger.stored(trail), ledger.handed_over(trail), ledger.dropped(trail)
    suspect = {row.queue.topic: row.suspect for row in ledger.balance(*sides).collect()}
    assert suspect == {"group": False, "live": True}
    without = {row.queue.topic: row.suspect for row in ledger.balance(*sides[:2]).collect()}
    assert without == {"group": True, "live": True}


def test_entries_are_those_of_suspect_blocks_and_of_what_reaches_into_them(spark: Any) -> None:
    """Picked by producer and topic first: also where a block has deliveries alone, of a pair that was stored for."""
    made = {**COMMON, "t": 1.0, "at": 1.0, "event": "published", "subs": ["s", "other"]}
    came = {**COMMON, "t": 2.0, "at": 1.0, "event": "delivered", "kind": "durable"}
    events: list[dict[str, Any]] = [
        {**made, "seq": 500, "n": 20, "i": 1},  # begins in one block and ends in the next
        {**made, "seq": 5000, "i": 2},
        {**made, "producer": "q", "seq": 500, "i": 3},
        {**came, "sub": "s", "seq": 515, "i": 4},  # a second time, in a block that nothing is stored in
        *({**came, "sub": sub, "seq": 500, "n": 20, "i": 5} for sub in ("s", "other")),
        *({**came, "sub": sub, "seq": 5000, "i": 6} for sub in ("s", "other")),
        {**came, "producer": "r", "sub": "s", "seq": 5000, "i": 6},  # never stored
        *({**came, "producer": "q", "sub": sub, "seq": 500, "i": 7} for sub in ("s", "other")),
    ]
    trail = make_trail(spark, events)
    chosen = entries.wanted(ledger.balance(ledger.stored(trail), ledger.handed_over(trail)))
    found = entries.entries(trail, chosen, None).collect()
    assert {(row.producer, row.sub, row.side, row["first"], row.past) for row in found} == {
        ("p", "s", entries.STORED, 500, 520),
        ("p", "s", entries.DELIVERED, 500, 520),
        ("p", "s", entries.DELIVERED, 515, 516),
        ("r", "s", entries.DELIVERED, 5000, 5001),
    }


def test_a_trail_in_files_is_planned_once_and_for_its_size(spark: Any, tmp_path: Path) -> None:
    """Afterwards Spark does as before; a trail of unknown size changes nothing."""
    keys = ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")

    def settings() -> list[str]:
        return [spark.conf.get(key) for key in keys]

    spark.conf.set(keys[0], "true")
    at_hand = make_trail(spark, [{**COMMON, "event": "gap", "t": 1.0}])
    before = settings()
    try:
        at_hand.write.parquet(str(tmp_path / "trail"))
        with effort.steadily(at_hand):
            assert settings() == before
        with effort.steadily(read_trail(spark, str(tmp_path / "trail"))):
            assert settings() == ["false", "2"]
        assert settings() == before
    finally:
        spark.conf.set(keys[0], "false")


def test_a_group_may_step_back_but_not_within_a_key(spark: Any) -> None:
    """Lanes that never stepped back are not looked into at all; a repeat is not late besides."""
    events: list[dict[str, Any]] = [
        {**COMMON, "event": "published", "subs": ["s"], "seq": 1, "n": 6, "keys": [7, 8, 8, 9, 9, 7], "t": 0.0, "i": 1}
    ]
    came = {0: (2, 1, 6), 1: (3, 4), 2: (5, 4, 4)}  # partition -> numbers, as they were delivered
    for partition, numbers in came.items():
        line = {**COMMON, "event": "delivered", "sub": "s", "kind": "group", "partition": partition, "epoch": 1}
        events += [{**line, "seq": n, "i": 10 * partition + k, "t": float(k)} for k, n in enumerate(numbers)]
    trail = make_trail(spark, events)
    lanes = order.unruly(ledger.handed_over(trail))
    assert lanes.count() == 2
    repeats = trail.where("i = 22").select(name_key(*ledger.PAIR).alias("pair"), "run", "i")
    late = order.steps_back(trail, lanes, repeats).collect()
    assert [(row["first"], row.past, row.i, row.younger) for row in late] == [(4, 5, 21, 5)]


def test_a_delayed_message_comes_when_it_is_due_and_is_not_late(spark: Any) -> None:
    """Its number is that of its publish; but one that did not wait, and is overtaken, is late."""
    line = {**COMMON, "subs": ["s"], "t": 0.0}
    events: list[dict[str, Any]] = [
        {**line, "event": "delayed", "seq": 1, "i": 1, "due": 5.0},
        {**line, "event": "published", "seq": 2, "n": 2, "i": 2, "zxid": 2},
        {**line, "event": "due", "seq": 1, "i": 3, "due": 5.0, "zxid": 3},
    ]
    came = {**COMMON, "event": "delivered", "sub": "s", "kind": "durable", "epoch": 1}
    events += [{**came, "seq": n, "i": 10 + k, "t": float(k)} for k, n in enumerate((3, 2, 1))]
    trail = make_trail(spark, events)
    nothing = trail.where("i < 0").select(name_key(*ledger.PAIR).alias("pair"), "run", "i")
    late = order.steps_back(trail, order.unruly(ledger.handed_over(trail)), nothing).collect()
    assert [(row["first"], row.past, row.younger) for row in late] == [(2, 3, 3)]


def test_urgent_messages_overtake_and_are_in_order_among_themselves(spark: Any) -> None:
    """A lane is of one priority: only what steps back within it is late."""
    came = {**COMMON, "event": "delivered", "sub": "s", "kind": "durable", "epoch": 1}
    numbers = [(2, 5), (4, 5), (1, None), (3, 5), (5, None)]
    events = [{**came, "seq": n, "priority": p, "i": k, "t": float(k)} for k, (n, p) in enumerate(numbers)]
    trail = make_trail(spark, events)
    nothing = trail.where("i < 0").select(name_key(*ledger.PAIR).alias("pair"), "run", "i")
    late = order.steps_back(trail, order.unruly(ledger.handed_over(trail)), nothing).collect()
    assert [(row["first"], row.younger) for row in late] == [(3, 4)]


def test_a_purge_of_a_patterns_queue_counts_for_that_queue(spark: Any) -> None:
    """What is purged of it is told under the pattern, and what is stored in it under topics: one queue all the same."""
    sub = "cache (metrics.*)"
    common = {"run": "r", "node": "n", "host": "h", "producer": "p", "t": 1.0, "at": 1.0, "sub": sub}
    events: list[dict[str, Any]] = [
        {**common, "event": "published", "topic": topic, "sub": None, "subs": [sub, "own"], "seq": seq, "n": 3}
        for seq, topic in ((1, "metrics.cpu"), (4, "metrics.disk"))
    ]
    events.append({**common, "event": "delivered", "topic": "metrics.cpu", "kind": "durable", "seq": 1, "n": 1})
    events.append({**common, "event": "purged", "topic": "metrics.*", "n": 4, "t": 70.0})
    trail = make_trail(spark, events)
    rows = lag(trail, traffic.cube(trail, 60.0), 60.0).orderBy("topic", "sub", "step").collect()
    assert [(row.topic, row.sub, row.step, row.waiting) for row in rows] == [
        ("metrics.*", sub, 0.0, 5),
        ("metrics.*", sub, 60.0, 1),
        ("metrics.cpu", "own", 0.0, 3),
        ("metrics.disk", "own", 0.0, 3),
    ]
    window = Window(0.0, 60.0)
    window.add(1, _cells(cells(trail, 3600.0).collect()))
    window.waiting = changes(window.cells.items())
    found = {
        (row["topic"], row["sub"]): (row["stored"], row["purged"], row["waiting"]) for row in window.subscriptions()
    }
    assert found["metrics.*", sub] == (6, 4, 1)
    assert found["metrics.cpu", "own"] == (3, 0, 3)


def _cells(rows: list[Any]) -> list[tuple[CellKey, list[Any]]]:
    """As a window takes them."""
    return [((row.event, row.topic, row.sub, row.bucket), [row[name] for name in VALUES]) for row in rows]
