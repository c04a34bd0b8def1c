"""From a scenario's numbers to a table with all columns of a trail, in the order in which each node wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from zkms.trail.event import COLUMNS, EVENTS, KINDS
from zkms.trail.export.columns import SCHEMA
from zkms.trail.generate.cast import FLUSH, NODES, TOPICS, Shift, spread
from zkms.trail.generate.scenario import CODE, LOSSY_SECONDS, NONE, REASONS, STATES, Columns, Scenario, keys_of_users

UNWRITTEN = 0.15
"""Seconds before its end that a killed node's trail lacks."""


def assemble(scenario: Scenario, rows: Columns) -> pa.Table:
    """The table, sorted by node and line."""
    rows = _written(scenario.shift, rows)
    shift, size = scenario.shift, len(rows["time"])
    node = rows["node"]

    def words(values: Any, codes: np.ndarray) -> pa.Array:
        return pa.array(values).take(pa.array(codes, mask=codes == NONE))

    def integers(name: str) -> pa.Array:
        return pa.array(rows[name], mask=rows[name] == NONE, type=SCHEMA.field(name).type)

    def reals(name: str) -> pa.Array:
        return pa.array(rows[name], mask=np.isnan(rows[name]))

    opened = rows["event"] == CODE["opened"]
    at = np.where(rows["event"] == CODE["lost"], rows["at"] + shift.skew[node], rows["at"])
    given: dict[str, pa.Array] = {
        "source": words(shift.sources, node),
        "node": words(shift.nodes, node),
        "host": words(shift.hosts, node),
        "pid": pa.array(shift.pids[node]),
        "run": words(shift.runs, node),
        "started": pa.array(np.full(size, shift.begin)),
        "file": pa.array(np.ones(size, np.int64)),
        "i": pa.array(rows["i"]),
        "event": words(EVENTS, rows["event"]),
        "t": pa.array(rows["time"] + shift.skew[node]),
        "m": pa.array(rows["time"] - shift.boot[node]),
        "topic": words(TOPICS, rows["topic"]),
        "producer": words(scenario.producers, rows["producer"]),
        "places": _places(rows),
        "keys": _keys(rows, shift),
        "sub": words(scenario.subs, rows["sub"]),
        "subs": words(scenario.lists, rows["subs"]),
        "kind": words(KINDS, rows["kind"]),
        "at": pa.array(at, mask=np.isnan(at)),
        "due": reals("due"),
        "expires": reals("expires"),
        "zxid": pa.array(_zxids(rows, shift), mask=rows["zxid"] == NONE),
        "state": words(STATES, rows["state"]),
        "reason": words(REASONS, rows["reason"]),
        "removed": pa.array(np.zeros(size, np.int64), mask=~opened),
        "flush": pa.array(np.full(size, FLUSH), mask=~opened),
    }
    for name in ("seq", "n", "partition", "epoch", "size", "attempt", "priority", "lines", "lost"):
        given[name] = integers(name)
    return pa.table(
        [given[name] if name in given else pa.nulls(size, SCHEMA.field(name).type) for name in COLUMNS], schema=SCHEMA
    )


def _written(shift: Shift, rows: Columns) -> Columns:
    """Sorted and numbered, without the lines that were never written; those are counted where the trail says so."""
    framing = np.isin(rows["event"], [CODE["opened"], CODE["closed"]])
    order = np.lexsort((rows["time"], framing * (1 - 2 * (rows["event"] == CODE["opened"])), rows["node"]))
    rows = {name: values[order] for name, values in rows.items()}
    event, node, time = rows["event"], rows["node"], rows["time"]
    framing = framing[order]
    counted = np.cumsum(~framing)
    first = np.searchsorted(node, np.arange(NODES))
    base = np.where(first > 0, counted[np.maximum(first, 1) - 1], 0)
    rows["i"] = np.where(framing, 0, counted - base[node])
    unwritten = (node == shift.killed) & ~framing & (time > shift.kill_at - UNWRITTEN)
    lossy = (node == shift.lossy) & ~framing & (event != CODE["lost"])
    lossy &= (time >= shift.lossy_at) & (time <= shift.lossy_at + LOSSY_SECONDS)
    rows["n"] = np.where(event == CODE["lost"], lossy.sum(), rows["n"])
    closed = event == CODE["closed"]
    rows["lost"] = np.where(closed & (node == shift.lossy), lossy.sum(), rows["lost"])
    killed = closed & (node == shift.killed)
    rows["lost"] = np.where(killed, unwritten.sum(), rows["lost"])
    rows["n"] = np.where(killed, unwritten.sum(), rows["n"])
    rows = {name: values[~(unwritten | lossy)] for name, values in rows.items()}
    lines = np.bincount(rows["node"], minlength=NODES)
    lines[shift.killed] -= 1  # its last line is not in the file
    rows["lines"] = np.where(rows["event"] == CODE["closed"], lines[rows["node"]], rows["lines"])
    return rows


def _zxids(rows: Columns, shift: Shift) -> np.ndarray:
    """ZooKeeper's order: of a publish that of the frames, not that of the answers."""
    published = np.isin(rows["event"], [CODE["published"], CODE["delayed"]])
    stored = np.where(published, rows["at"] - shift.skew[rows["node"]], rows["time"])
    stored = np.where(rows["zxid"] == NONE, np.inf, stored)
    zxids = np.empty(len(stored), np.int64)
    zxids[np.argsort(stored, kind="stable")] = np.arange(len(stored))
    return zxids + ((shift.number + 1) << 32)


def _places(rows: Columns) -> pa.Array:
    """Of a row that is about every second message, say, where these are; none for a single one."""
    listed = (rows["stride"] != NONE) & (rows["n"] > 1)
    lengths = np.where(listed, rows["n"], 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = (np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)) * np.repeat(rows["stride"], lengths)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values), mask=pa.array(~listed))


def _keys(rows: Columns, shift: Shift) -> pa.Array:
    """One hash for each message of frames with keys."""
    keyed = (rows["key"] != NONE) & np.isin(rows["event"], [CODE["published"], CODE["delayed"]])
    lengths = np.where(keyed, rows["n"], 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = keys_of_users(lengths, shift.rng)
    single = keyed & (rows["topic"] != 0)
    values[offsets[:-1][single]] = spread(rows["key"][single])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values), mask=pa.array(~keyed))
