"""A slow and simple audit for small trails: what tests believe instead of the generator, or of the bus."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from zkms.trail.export.export import Exporter, find

Row = dict[str, Any]
Found = set[tuple[str, str, str, int]]
TOLERANCE = 2.0
"""Seconds: more than any clock is off."""


def exported(trail: Path, to: Path) -> list[Row]:
    """The rows of all trails in a directory, by way of an export."""
    Exporter(str(to)).run(find([trail]))
    return [row for path in to.glob("date=*/hour=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]


def messages(row: Row) -> list[tuple[str, int]]:
    """The messages of a row."""
    return [(row["producer"], row["seq"] + place) for place in row["places"] or range(row["n"])]


def audit(rows: list[Row]) -> Found:
    """Violations as (kind, subscription, producer, seq); what missing lines may explain is none."""
    by: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["started"], row["source"], row["i"])):  # a stream has one reader
        by[row["event"]].append(row)
    kinds = {row["sub"]: row["kind"] for row in by["subscribed"]}
    key, expires, due, priority = {}, {}, {}, {}
    for row in [*by["published"], *by["delayed"]]:
        for place, message in enumerate(messages(row)):
            key[message] = row["keys"][place] if row["keys"] else 0
            expires[message], due[message] = row["expires"], row["due"]
            priority[message] = row["priority"] or 0
    found: Found = set()
    delivered = set()
    newest: dict[tuple[Any, ...], int] = {}
    for row in by["delivered"]:
        for message in messages(row):
            producer, seq = message
            if (row["sub"], *message) in delivered:
                found.add(("duplicated", row["sub"], *message))
                continue
            delivered.add((row["sub"], *message))
            of = key.get(message) if row["kind"] == "group" else None
            stream = (row["sub"], producer, row["priority"], of)
            if seq < newest.get(stream, 0):
                found.add(("out_of_order", row["sub"], *message))
            newest[stream] = max(seq, newest.get(stream, 0))
            if due.get(message) is not None and row["t"] < due[message] - TOLERANCE:
                found.add(("early", row["sub"], *message))
            if expires.get(message) is not None and row["t"] > expires[message] + TOLERANCE:
                found.add(("after_expiry", row["sub"], *message))
    accounted = {(row["sub"], *m) for name in ("expired", "dead") for row in by[name] for m in messages(row)}
    purged = {row["sub"] for row in by["purged"]}
    told = {row["sub"] for row in by["gap"]}
    got = delivered | {(row["sub"], *m) for row in by["redelivered"] for m in messages(row)}
    zxid = {m: row["zxid"] or 0 for name in ("published", "due") for row in by[name] for m in messages(row)}
    reads: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for sub, *message in got:
        reads[sub].append((zxid.get(tuple(message), 0), priority.get(tuple(message), 0)))
    ends: dict[str, list[float]] = defaultdict(list)
    for row in by["unsubscribed"]:
        ends[row["sub"]].append(row["zxid"] or float("inf"))

    taken = {row["sub"]: row["zxid"] or 0 for row in sorted(by["subscribed"], key=lambda row: row["zxid"] or 0)}

    def was_waiting(sub: str, message: tuple[str, int]) -> bool:
        """Whether nothing younger had come when it was given up: a queue is read in order, the urgent ones first."""
        own, rank = zxid[message], priority.get(message, 0)
        end = min((end for end in ends[sub] if end > own), default=None)
        if end is None:
            return False
        if kinds.get(sub) == "group" and end < taken[sub]:  # partitions run ahead of each other: who knows
            return True
        return not any(own < other < end and its <= rank for other, its in reads[sub])

    holes = [(row["at"], row["t"]) for row in by["lost"]]
    for row in [*by["published"], *by["due"]]:
        if any(since - TOLERANCE < row["t"] < until + TOLERANCE for since, until in holes):
            continue
        for sub in row["subs"]:
            if sub in told or sub in purged:
                continue  # that something is missing was announced
            for message in messages(row):
                one = (sub, *message)
                if one not in got and one not in accounted and not was_waiting(sub, message):
                    found.add(("missed" if kinds.get(sub, "live") == "live" else "lost", sub, *message))
    found |= _usurped(by)
    return found


def _usurped(by: dict[str, list[Row]]) -> Found:
    owned = defaultdict(list)
    for row in by["subscribed"]:
        if row["epoch"] is not None:
            owned[row["sub"], row["partition"]].append((row["zxid"], row["epoch"]))
    return {
        ("not_owner", row["sub"], *message)
        for row in by["acked"]
        if row["epoch"] is not None
        and row["epoch"] < max(epoch for zxid, epoch in owned[row["sub"], row["partition"]] if zxid < row["zxid"])
        for message in messages(row)
    }
