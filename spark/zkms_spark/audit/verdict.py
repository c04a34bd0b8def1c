"""The verdict: each guarantee is kept, broken, undecided or untried, in one sentence each."""

from __future__ import annotations

from dataclasses import dataclass

KEPT, BROKEN, UNDECIDED, UNTRIED = "kept", "broken", "undecided", "untried"

GUARANTEES = {
    "missed": (
        "Live subscriptions hear of every message, or of a gap",
        "missed by a live subscription that was not told",
    ),
    "lost": ("Nothing stored for a durable or group subscription is lost", "stored and never delivered"),
    "duplicated": ("Nothing is delivered twice, unless called a redelivery", "delivered twice"),
    "out_of_order": ("Messages come in the order of their publisher, or of their key", "delivered after a younger one"),
    "early": ("No delayed message comes before its time", "delivered before it was due"),
    "after_expiry": ("No message comes after it has expired", "delivered after it had expired"),
    "not_owner": (
        "Only the owner of a partition or name can acknowledge",
        "acked by one that had been taken over from",
    ),
}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one guarantee."""

    violation: str
    guarantee: str
    status: str
    violations: int
    """Rows: each is a stretch of messages."""
    messages: int
    undecided: int
    reason: str


def judge(counts: dict[tuple[str, str], tuple[int, int]], tried: set[str], missing_lines: str) -> list[Verdict]:
    """The verdicts, from how many rows and messages the audit found of each violation and verdict.

    `tried` are the violations that could have happened at all. `missing_lines`, if not empty, says that lines of living
    processes are missing: a guarantee that seems kept may then have been broken in what they told.
    """
    verdicts = []
    for violation, (guarantee, phrase) in GUARANTEES.items():
        rows, messages = counts.get((violation, "violation"), (0, 0))
        open_rows, open_messages = counts.get((violation, "undecided"), (0, 0))
        status, reason = KEPT, ""
        if rows:
            status, reason = BROKEN, f"{_messages(messages)} {phrase}"
        elif open_rows:
            status, reason = UNDECIDED, f"of {_messages(open_messages)} the trail does not tell: lines are missing"
        elif violation not in tried:
            status, reason = UNTRIED, "nothing in this trail puts it to the test"
        elif missing_lines:
            status, reason = UNDECIDED, missing_lines
        verdicts.append(Verdict(violation, guarantee, status, rows, messages, open_messages, reason))
    return verdicts


def overall(verdicts: list[Verdict]) -> str:
    """Broken if one is, else undecided if one is, else kept."""
    statuses = {verdict.status for verdict in verdicts}
    return next((status for status in (BROKEN, UNDECIDED, KEPT) if status in statuses), UNTRIED)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"
