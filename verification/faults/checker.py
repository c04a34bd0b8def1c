"""The checker: compares the journals of publishers with those of consumers. It knows nothing of zkms.

    lost           told stored, and never delivered; or delivered to one subscription and not to another
    duplicated     live: delivered twice; else: acked twice, or delivered again to the process that had acked it
    out_of_order   first delivered after a younger one of its publisher (group: of its key), or, live, in another order
                   than to another subscriber; delayed messages have no order of publishing
    early          delivered before it was due
    phantom        delivered, though its publisher was told that nothing was stored
    repeated       delivered again before an ack was stored: allowed, the promise is at least once

A live subscriber may miss messages only around an announced gap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from verification.faults.journal import Record
from verification.faults.orders import KEYS, Workload

Id = tuple[str, int]
"""Publisher and number."""
CLOCK = 0.002
"""Seconds that two readings of one wall clock may differ."""
SHOWN = 20


class Sent(NamedTuple):
    """The outcome of a message, as its publisher knows it."""

    begun: float
    outcome: str
    """stored, unknown or refused; "begun" if the publisher died before the reply."""
    at: float
    due: float | None


@dataclass
class Reader:
    """One process that consumed, with its records in the order in which it wrote them."""

    name: str
    subscription: str
    records: list[Record] = field(default_factory=list)
    killed: bool = False
    """Killed on purpose: messages in flight to it are not lost."""

    def got(self) -> Iterator[tuple[Id, float, float]]:
        """Message, monotonic and wall clock of each delivery."""
        for kind, *rest in self.records:
            if kind == "got":
                who, number, at, wall = rest
                yield (who, number), at, wall

    def acked(self) -> Iterator[tuple[Id, float]]:
        """Message and time of each ack that was stored."""
        for kind, *rest in self.records:
            if kind == "acked":
                yield (rest[0], rest[1]), rest[2]


@dataclass
class Verdict:
    """Counts, and the first few violations in words."""

    published: int = 0
    unknown: int = 0
    refused: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    early: int = 0
    phantom: int = 0
    repeated: int = 0
    gaps: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def violations(self) -> int:
        """How many there are."""
        return self.lost + self.duplicated + self.out_of_order + self.early + self.phantom

    def find(self, kind: str, what: str) -> None:
        """Count a violation."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < SHOWN:
            self.examples.append(f"{kind}: {what}")


def sent(records: Iterable[Record]) -> dict[Id, Sent]:
    """Return the outcome of each message, as its publisher knows it."""
    found: dict[Id, Sent] = {}
    for kind, who, number, at, *more in records:
        message = (who, number)
        if kind == "begun":
            found[message] = Sent(at, "begun", at, None)
        else:
            due = more[0] if kind == "stored" else None
            found[message] = Sent(found[message].begun, kind, at, due)
    return found


def judge(workload: Workload, messages: dict[Id, Sent], readers: list[Reader]) -> Verdict:
    """Compare all that was published with all that was delivered."""
    verdict = Verdict(
        published=sum(one.outcome == "stored" for one in messages.values()),
        unknown=sum(one.outcome in ("unknown", "begun") for one in messages.values()),
        refused=sum(one.outcome == "refused" for one in messages.values()),
        delivered=sum(1 for reader in readers for _ in reader.got()),
        gaps=sum(record[0] == "gap" for reader in readers for record in reader.records),
    )
    anywhere = {message for reader in readers for message, *_ in reader.got()}
    expected = {
        message: one for message, one in messages.items() if one.outcome == "stored" or message in anywhere
    }  # fmt: skip
    for message in anywhere:
        if message not in messages or messages[message].outcome == "refused":
            verdict.find("phantom", f"{message} was delivered, and its publisher was told that it is not stored")
    if workload == "live":
        for reader in readers:
            _judge_live(reader, expected, verdict)
        _judge_agreement(readers, verdict)
    else:
        by: dict[str, list[Reader]] = defaultdict(list)
        for reader in readers:
            by[reader.subscription].append(reader)
        for subscription, those in by.items():
            _judge_kept(workload, subscription, those, expected, verdict)
    if workload == "delayed":
        _judge_times(readers, messages, verdict)
    return verdict


def missing(workload: Workload, messages: dict[Id, Sent], readers: list[Reader]) -> int:
    """Return how many messages have not arrived yet."""
    return judge(workload, messages, readers).lost


def _judge_live(reader: Reader, expected: dict[Id, Sent], verdict: Verdict) -> None:
    ready: float | None = None
    places: dict[Id, int] = {}
    gaps: list[tuple[int, float]] = []
    newest: dict[str, int] = {}
    for place, (kind, *rest) in enumerate(reader.records):
        if kind == "ready":
            ready = rest[0]
        elif kind == "gap":
            gaps.append((place, rest[0]))
        elif kind == "got":
            message = who, number = rest[0], rest[1]
            if message in places:
                verdict.find("duplicated", f"{message} was delivered to {reader.name} twice")
                continue
            places[message] = place
            if number < newest.get(who, -1):
                verdict.find("out_of_order", f"{message} came to {reader.name} after {newest[who]}")
            newest[who] = max(number, newest.get(who, -1))
    if ready is None:
        return  # it was killed before it subscribed
    for message in _missed(expected, places, gaps, ready, killed=reader.killed):
        verdict.find("lost", f"{message} did not come to {reader.name}, and no gap was announced")


def _missed(
    expected: dict[Id, Sent], places: dict[Id, int], gaps: list[tuple[int, float]], ready: float, *, killed: bool
) -> Iterator[Id]:
    """Yield the expected messages that are missing, without a gap at their position."""
    by: dict[str, list[int]] = defaultdict(list)
    for who, number in expected:
        by[who].append(number)
    for who, numbers in by.items():
        before: int | None = None
        waiting: list[int] = []
        for number in sorted(numbers):
            place = places.get((who, number))
            if place is None:
                waiting.append(number)
                continue
            since = -1 if before is None else before
            if not any(since < gap < place for gap, _ in gaps):
                # What was published before subscribe() returned may or may not come.
                yield from ((who, n) for n in waiting if before is not None or expected[who, n].begun > ready)
            before, waiting = place, []
        if killed:
            continue
        # Nothing later came: only messages that were published after the last gap must come.
        told = max((at for gap, at in gaps if before is None or gap > before), default=None)
        floor = told if told is not None else ready if before is None else 0.0
        yield from ((who, n) for n in waiting if expected[who, n].begun > floor)


def _judge_agreement(readers: list[Reader], verdict: Verdict) -> None:
    """Check that all subscribers get all messages in the same order."""
    orders = [list(dict.fromkeys(message for message, *_ in reader.got())) for reader in readers]
    for (one, first), (other, second) in pairwise(zip(readers, orders, strict=True)):
        rank = {message: place for place, message in enumerate(first)}
        common = [message for message in second if message in rank]
        for earlier, later in pairwise(common):
            if rank[earlier] > rank[later]:
                verdict.find("out_of_order", f"{earlier} before {later} for {other.name}, after it for {one.name}")


def _judge_kept(
    workload: Workload, subscription: str, readers: list[Reader], expected: dict[Id, Sent], verdict: Verdict
) -> None:
    deliveries = sorted((at, message, reader.name) for reader in readers for message, at, _ in reader.got())
    first: dict[Id, float] = {}
    newest: dict[str, int] = {}
    for at, message, name in deliveries:
        if message in first:
            verdict.repeated += 1
            continue
        first[message] = at
        who, number = message
        line = f"{who}-{number % KEYS}" if workload == "group" else who
        if workload != "delayed" and number < newest.get(line, -1):
            verdict.find("out_of_order", f"{message} came to {name} after {newest[line]} of {line}")
        newest[line] = max(number, newest.get(line, -1))
    for message in expected:
        if message not in first:
            verdict.find("lost", f"{message} did not come to {subscription}")
    acked: dict[Id, tuple[float, str]] = {}
    for at, message, name in sorted((at, message, reader.name) for reader in readers for message, at in reader.acked()):
        if message in acked:
            verdict.find("duplicated", f"{message} of {subscription} was acked by {acked[message][1]} and by {name}")
        acked[message] = at, name
    for at, message, name in deliveries:
        if message in acked and at > acked[message][0] and name == acked[message][1]:
            verdict.find("duplicated", f"{message} came to {name} again after its ack")


def _judge_times(readers: list[Reader], messages: dict[Id, Sent], verdict: Verdict) -> None:
    for reader in readers:
        for message, _, wall in reader.got():
            due = messages[message].due if message in messages else None
            if due is not None and wall < due - CLOCK:
                verdict.find("early", f"{message} came to {reader.name} {due - wall:.3f} s early")
