"""The summary of a trail in plain sentences, at the top of the report."""

from __future__ import annotations

from zkms_spark.analysis import Analysis
from zkms_spark.audit.verdict import BROKEN, KEPT, UNDECIDED
from zkms_spark.report.words import clock, count, listing, span

HEADLINES = {
    KEPT: "Every guarantee that could be checked was kept.",
    BROKEN: "Guarantees were broken.",
    UNDECIDED: "No guarantee was seen broken, but the trail does not tell everything.",
}
SKEWED = 1.0
"""Seconds: a clock further off is worth a sentence."""


def headline(analysis: Analysis) -> str:
    """The verdict."""
    return HEADLINES.get(analysis.overall, "There was nothing to check.")


def reasons(analysis: Analysis) -> list[str]:
    """Why the verdict is what it is."""
    broken = [verdict for verdict in analysis.verdicts if verdict.status == BROKEN]
    undecided = [verdict for verdict in analysis.verdicts if verdict.status == UNDECIDED]
    unsaid = dict.fromkeys(f"Not everything can be judged: {verdict.reason}." for verdict in undecided)
    return [*(f"{verdict.guarantee}: {verdict.reason}." for verdict in broken), *unsaid]


def doubts(analysis: Analysis) -> list[str]:
    """What makes the trail itself doubtful: bad files, and processes that cannot be told apart by their names."""
    same = [
        f"two processes were called {one.node!r} at the same time: {one.pid} on {one.host} and {other.pid} on "
        f"{other.host}; they are kept apart here, but give each a client_id of its own"
        for one, other in analysis.namesakes
    ]
    return [*analysis.warnings, *same]


def sentences(analysis: Analysis) -> list[str]:
    """What happened."""
    a = analysis
    copies = a.totals.get("stored", 0)
    first = (
        f"{count(a.messages, 'message was', 'messages were')} published on {count(len(a.topics), 'topic')}, stored "
        f"{copies:,} times for {count(a.subscriptions_in_all, 'subscription')}, and delivered "
        f"{a.totals.get('delivered', 0):,} times, between {clock(a.began, day=True)} and {clock(a.ended, day=True)}."
    )
    text = [first]
    slowest = max((row for row in a.topics if row["p99"] is not None), key=lambda row: row["p99"], default=None)
    if slowest is not None:
        text.append(
            f"Half of all messages on {slowest['topic']} arrived within {span(slowest['p50'])}, 99 of 100 within "
            f"{span(slowest['p99'])}; no topic was slower."
        )
    return text + _absences(a) + _trouble(a)


def _absences(a: Analysis) -> list[str]:
    text = []
    for what, phrase in (
        ("purged", "were purged with the queues of subscribers that had gone"),
        ("gap", "were not delivered, and a gap event said so"),
        ("unsubscribed", "waited for subscriptions that were given up"),
    ):
        rows = [row for row in a.absent if row["fate"] == "accounted" and row["what"] == what]
        if rows:
            total = sum(row["messages"] for row in rows)
            names = listing(sorted({row["sub"] for row in rows}))
            text.append(f"{count(total, 'message')} {phrase} ({names}).")
    waiting = sum(row["messages"] for row in a.absent if row["fate"] == "waiting")
    if waiting:
        text.append(f"{count(waiting, 'message was', 'messages were')} still waiting when the trail ended.")
    return text


def _trouble(a: Analysis) -> list[str]:
    text = []
    killed = sorted({run["node"] for run in a.runs if run["killed"]})
    if killed:
        text.append(
            f"{listing(killed)} did not end in an orderly way: killed, or still running when this was exported."
        )
    lost = sum(hole["lines"] or 0 for hole in a.holes)
    if lost:
        nodes = listing(sorted({hole["node"] for hole in a.holes}))
        text.append(f"{count(lost, 'line')} of the trail {'is' if lost == 1 else 'are'} missing ({nodes}).")
    for row in a.clocks:
        if abs(row["offset"]) >= SKEWED:
            way = "ahead" if row["offset"] > 0 else "behind"
            text.append(
                f"The clock of {row['host']} is {span(abs(row['offset']))} {way}; times below are corrected for it."
            )
    slow = [row["sub"] for row in a.subscriptions if row["slow"]]
    if slow:
        text.append(f"{listing(slow)} {'is' if len(slow) == 1 else 'are'} slow beside others of the same topic.")
    if a.storms:
        burst = a.storms[0]
        text.append(f"One key of {burst['topic']} was published {burst['burst']:,} times within ten seconds.")
    unknown = a.totals.get("of_unknown", 0)
    if unknown:
        text.append(
            f"{count(unknown, 'delivery', 'deliveries')} cannot be judged: whoever published them left no trail."
        )
    return text
