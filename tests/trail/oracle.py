"""A slow and simple audit for small trails: what tests believe instead of the generator, or of the bus."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from zkms.trail.export import Exporter, find

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
    key, expires, due = {}, {}, {}
    for row in [*by["published"], *by["delayed"]]:
        for place, message in enumerate(messages(row)):
            key[message] = row["keys"][place] if row["keys"] else 0
            expires[message], due[message] = row["expires"], row["due"]
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
            stream = (row["sub"], producer, key.get(message) if row["kind"] == "group" else None)
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
    given_up = {row["sub"] for row in by["unsubscribed"] if row["partition"] is None}
    zxid = {m: row["zxid"] for name in ("published", "due") for row in by[name] for m in messages(row)}
    read_to: dict[str, int] = defaultdict(int)  # a queue is read in the order in which it was filled
    for sub, *message in delivered:
        read_to[sub] = max(read_to[sub], zxid.get(tuple(message)) or 0)
    holes = [(row["at"], row["t"]) for row in by["lost"]]
    for row in [*by["published"], *by["due"]]:
        if any(since - TOLERANCE < row["t"] < until + TOLERANCE for since, until in holes):
            continue
        for sub in row["subs"]:
            if sub in told or (sub in given_up and (row["zxid"] or 0) > read_to[sub]):
                continue  # that something is missing was announced, or it was still waiting
            for message in messages(row):
                one = (sub, *message)
                if one not in delivered and one not in accounted and sub not in purged:
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
