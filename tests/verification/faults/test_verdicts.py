"""The checker of nemeses finds what is planted into journals, and nothing in sound ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification.faults.checker import Reader, Verdict, judge, sent
from verification.faults.journal import Journal, Record, Tail
from verification.faults.orders import Workload
from verification.faults.pauses import longest

COUNT = 6


def published(*, outcomes: dict[int, str] | None = None, due: float | None = None) -> list[Record]:
    """One publisher's journal: message n was begun at n + 0.1 and stored at n + 0.2."""
    records: list[Record] = []
    for number in range(COUNT):
        outcome = (outcomes or {}).get(number, "stored")
        records += [["begun", "p", number, number + 0.1], [outcome, "p", number, number + 0.2, due]]
    return records


def got(number: int, at: float, wall: float = 100.0) -> Record:
    """A delivery."""
    return ["got", "p", number, at, wall]


def reader(*records: Record, name: str = "c", subscription: str = "s") -> Reader:
    """A consumer that subscribed before anything was published."""
    return Reader(name, subscription, [["ready", 0.0], *records])


def deliveries(*numbers: int) -> list[Record]:
    """Messages in this order, a moment after one another."""
    return [got(number, 10.0 + place) for place, number in enumerate(numbers)]


def found(verdict: Verdict) -> dict[str, int]:
    """The violations that were found."""
    kinds = ("lost", "duplicated", "out_of_order", "early", "phantom")
    return {kind: getattr(verdict, kind) for kind in kinds if getattr(verdict, kind)}


@pytest.mark.parametrize("workload", ["live", "durable", "group", "delayed"])
def test_all_messages_once_and_in_order_are_no_violation(workload: Workload) -> None:
    """Sound journals of two subscriptions."""
    readers = [reader(*deliveries(*range(COUNT)), name=name, subscription=name) for name in "ab"]
    verdict = judge(workload, sent(published()), readers)
    assert found(verdict) == {}
    assert (verdict.published, verdict.delivered) == (COUNT, 2 * COUNT)


@pytest.mark.parametrize(
    ("workload", "records", "violations"),
    [
        ("live", deliveries(0, 1, 3, 4, 5), {"lost": 1}),
        ("live", deliveries(0, 1, 2, 3, 4), {"lost": 1}),
        ("live", deliveries(1, 2, 3, 4, 5), {"lost": 1}),
        ("live", [*deliveries(0, 1), ["gap", 12.5, "expired"], *deliveries(4, 5)], {}),
        ("live", [*deliveries(0, 1), ["gap", 3.5, "expired"]], {"lost": 2}),
        ("live", [*deliveries(0, 1, 2, 3, 4, 5), ["gap", 30.0, "expired"]], {}),
        ("live", deliveries(0, 1, 2, 2, 3, 4, 5), {"duplicated": 1}),
        ("live", deliveries(0, 2, 1, 3, 4, 5), {"out_of_order": 1}),
        ("durable", deliveries(0, 1, 3, 4, 5), {"lost": 1}),
        ("durable", deliveries(0, 1, 1, 2, 3, 4, 5), {}),
        ("durable", [*deliveries(0, 1, 2, 3, 4, 5), ["acked", "p", 0, 20.0], got(0, 21.0)], {"duplicated": 1}),
        ("durable", [*deliveries(*range(COUNT)), *[["acked", "p", 0, 20.0]] * 2], {"duplicated": 1}),
        ("durable", deliveries(1, 0, 2, 3, 4, 5), {"out_of_order": 1}),
        ("group", deliveries(1, 0, 2, 3, 4, 5), {}),
        ("group", deliveries(5, 0, 1, 2, 3, 4), {"out_of_order": 1}),
        ("delayed", deliveries(5, 4, 3, 2, 1, 0), {}),
    ],
)
def test_what_is_planted_is_found(workload: Workload, records: list[Record], violations: dict[str, int]) -> None:
    """And what the guarantee allows is not taken for a violation."""
    assert found(judge(workload, sent(published()), [reader(*records)])) == violations


def test_what_was_published_before_subscribe_returned_may_be_missing() -> None:
    """Only what began afterwards must come."""
    late = Reader("c", "c", [["ready", 1.5], *deliveries(2, 3, 4, 5)])
    assert found(judge("live", sent(published()), [late])) == {}


def test_a_process_that_was_killed_misses_nothing_afterwards() -> None:
    """What was in its queue goes with it; what is missing between two deliveries is lost all the same."""
    assert found(judge("live", sent(published()), [Reader("c", "c", [["ready", 0.0], *deliveries(0, 1)], True)])) == {}
    holey = Reader("c", "c", [["ready", 0.0], *deliveries(0, 2)], True)
    assert found(judge("live", sent(published()), [holey])) == {"lost": 1}


def test_what_may_have_been_stored_comes_to_all_or_to_none() -> None:
    """Half a fan-out is a loss; what was refused must not come at all."""
    messages = sent(published(outcomes={5: "unknown"}))
    none = [reader(*deliveries(0, 1, 2, 3, 4), name=name, subscription=name) for name in "ab"]
    assert found(judge("durable", messages, none)) == {}
    half = [none[0], reader(*deliveries(*range(COUNT)), name="c", subscription="c")]
    assert found(judge("durable", messages, half)) == {"lost": 1}
    refused = sent(published(outcomes={5: "refused"}))
    assert found(judge("durable", refused, [reader(*deliveries(*range(COUNT)))])) == {"phantom": 1}


def test_subscribers_that_hear_two_publishers_in_different_orders_are_found() -> None:
    """Each publisher's own order is kept, and still they disagree."""
    records = [record for who in "pq" for record in (["begun", who, 0, 1.0], ["stored", who, 0, 1.1, None])]
    one, other = (
        reader(*[["got", who, 0, 2.0 + place, 2.0] for place, who in enumerate(order)], name=order)
        for order in ("pq", "qp")
    )
    assert found(judge("live", sent(records), [one, other])) == {"out_of_order": 1}


def test_a_delayed_message_must_not_come_before_it_is_due() -> None:
    """By the wall clock of who got it."""
    messages = sent(published(due=100.0))
    late, early = [got(n, 10.0 + n, 100.0) for n in range(COUNT)], [got(n, 10.0 + n, 99.9) for n in range(COUNT)]
    assert found(judge("delayed", messages, [reader(*late)])) == {}
    assert found(judge("delayed", messages, [reader(*early)])) == {"early": COUNT}


def test_a_journal_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    """A line that is not whole, of a process that was killed, is left out."""
    path = tmp_path / "journal"
    tail = Tail(path)
    assert tail.look() == []
    with Journal(path) as journal:
        journal.note(["ready", 1.0], ["got", "p", 1, 2.0, 3.0])
        assert len(tail.look()) == 2
        path.open("ab").write(b'["got", "p"')
        assert len(tail.look()) == 2


def test_the_longest_pause_counts_both_ends() -> None:
    """Nothing at all is a pause of the whole window."""
    assert longest([], 10.0, 15.0) == 5.0
    assert longest([5.0, 11.0, 12.0, 20.0], 10.0, 15.0) == 3.0
