"""What is past its time: expired messages, remembered ids, topics and subscriptions that nobody uses."""

from __future__ import annotations

import time

import pytest
from zkms_cleaner import Lead, Sweeper
from zkms_cleaner.leftovers import ID_WINDOW, TOPIC_IDLE, Leftovers

import zkms
from tests.support.buses import Connect
from zkms import Bus, DuplicateMessage
from zkms.errors import TransactionFailed
from zkms.zookeeper.operations import Delete


def sweep(bus: Bus, lead: Lead, later: float = 0.0, **options: float) -> list[str]:
    """Sweep as if it were so many seconds later; the kinds of what was removed."""
    sweeper = Sweeper(bus.parts.session, bus.parts.tree, grace=0.0, wall_clock=lambda: time.time() + later, **options)  # type: ignore[arg-type]
    expected = sorted(
        f"{finding.kind} {finding.path}" for finding in sweeper.find() if finding.kind not in ("empty", "nothing")
    )
    removed = [finding for finding in sweeper.sweep(lead).removed if finding.kind not in ("empty", "nothing")]
    assert sorted(f"{finding.kind} {finding.path}" for finding in removed) == expected, "what --dry-run shows"
    return [finding.kind for finding in removed]


def test_expired_messages_of_those_who_are_away_are_removed(observer: Bus, connect: Connect, lead: Lead) -> None:
    """By the entry's name alone; the receipt does not call that an ack, and what lives is kept."""
    connect().subscribe("users", name="audit").close()
    receipt = observer.publish("users", "old", ttl=60)
    observer.publish("users", "new")
    assert sweep(observer, lead) == []
    assert sweep(observer, lead, later=120) == ["expired"]
    assert "expired" in receipt.wait(1).gone["audit"]
    message = observer.subscribe("users", name="audit").get(timeout=10)
    assert message is not None
    assert message.data == "new"


def test_what_has_expired_is_no_ack_though_older_messages_were_dropped_since(
    observer: Bus, connect: Connect, lead: Lead
) -> None:
    """The queue had to make room, and drops its oldest: the receipt of a younger one is told nothing new by that."""
    connect().subscribe("users", name="latest", limit=2, overflow="drop-oldest").close()
    observer.publish("users", "oldest")
    receipt = observer.publish("users", "over", ttl=60)
    assert sweep(observer, lead, later=120) == ["expired"]
    for data in ("fills it", "has no room"):
        observer.publish("users", data)
    latest = observer.subscribe("users", name="latest")
    got = [latest.get(timeout=10), latest.get(timeout=10)]  # with a gap in between: something was dropped
    assert [m.data for m in got if m is not None] == ["fills it", "has no room"]
    assert "latest" in receipt.wait(1).gone


def test_what_has_expired_is_no_ack_though_its_subscription_was_made_anew(
    observer: Bus, connect: Connect, lead: Lead
) -> None:
    """Somebody removed the registration by hand: its queue is taken over, with all that is known of it."""
    connect().subscribe("users", name="audit").close()
    receipt = observer.publish("users", "over", ttl=60)
    assert sweep(observer, lead, later=120) == ["expired"]
    observer.parts.session.multi([Delete(observer.parts.tree.registration("users", "audit"))])
    connect().subscribe("users", name="audit")
    assert "expired" in receipt.wait(1).gone["audit"]


def test_messages_older_than_their_subscription_keeps_them_are_removed(
    observer: Bus, connect: Connect, lead: Lead
) -> None:
    """`max_age` counts from when they were stored."""
    connect().subscribe("users", name="short", max_age=60).close()
    connect().subscribe("users", name="long").close()
    observer.publish_many("users", range(10))
    assert sweep(observer, lead, later=30) == []
    assert sweep(observer, lead, later=120) == ["expired"]
    assert {queue.subscription: queue.entries for queue in observer.queues()} == {"short": 0, "long": 1}


def test_ids_are_remembered_for_their_window_and_no_longer(observer: Bus, connect: Connect, lead: Lead) -> None:
    """Within it a repeat is refused; afterwards nothing of it is left."""
    connect().subscribe("users", name="audit")
    observer.publish("users", 1, id="order-1")
    observer.publish_many("users", ["a", "b"], id=str)
    assert sweep(observer, lead, later=ID_WINDOW / 2) == []
    with pytest.raises(DuplicateMessage):
        observer.publish("users", 1, id="order-1")
    assert sweep(observer, lead, later=ID_WINDOW + 60) == ["ids", "ids"]
    observer.publish("users", 1, id="order-1")


def test_a_topic_without_subscriptions_is_forgotten(observer: Bus, connect: Connect, lead: Lead) -> None:
    """Also a pattern; a publisher that still knows it is refused, and who subscribes makes it anew."""
    publisher = connect()
    connect().subscribe("users").close()
    connect().subscribe("users.*").close()
    with pytest.raises(zkms.NoSubscribers):
        publisher.publish("users", 1)
    assert sweep(observer, lead, later=TOPIC_IDLE / 2) == []
    assert sweep(observer, lead, later=TOPIC_IDLE + 60) == ["topics"]
    assert observer.topics() == []
    with pytest.raises(zkms.NoSubscribers):
        publisher.publish("users", 1)
    sub = connect().subscribe("users")
    publisher.publish("users", 2)
    message = sub.get(timeout=10)
    assert message is not None
    assert message.data == 2


def test_subscriptions_are_kept_unless_told_otherwise(observer: Bus, connect: Connect, lead: Lead) -> None:
    """However long nobody has read them; where it is asked for, only those where nothing waits go."""
    connect().subscribe("users", name="idle").close()
    connect().subscribe("jobs", group="waiting", partitions=2).close()
    observer.publish("jobs", 1)
    year = 365 * 86_400.0
    assert sweep(observer, lead, later=year) == []
    assert sweep(observer, lead, later=year, unused_after=86_400.0) == ["subscription"]
    assert {queue.subscription for queue in observer.queues()} == {"waiting#0", "waiting#1"}


def test_what_a_subscription_that_is_gone_knew_of_itself_is_removed(
    observer: Bus, connect: Connect, lead: Lead
) -> None:
    """Somebody removed the registration by hand: its queue and its ledgers go."""
    connect().subscribe("jobs", group="workers", partitions=2).close()
    observer.parts.session.multi([Delete(observer.parts.tree.registration("jobs", "workers"))])
    kinds = sweep(observer, lead)
    assert sorted(set(kinds)) == ["group", "queue"]
    assert observer.queues() == []


@pytest.mark.parametrize("topic_too", [False, True])
def test_a_group_that_is_enrolled_again_meanwhile_keeps_what_it_knows(
    observer: Bus, connect: Connect, topic_too: bool
) -> None:
    """Its registration was removed by hand, and the topic perhaps too; it was found so, and is there when it is due."""
    connect().subscribe("jobs", group="workers", partitions=2).close()
    tree, session = observer.parts.tree, observer.parts.session
    gone = [tree.registration("jobs", "workers"), *([tree.topic("jobs")] if topic_too else [])]
    session.multi([Delete(path) for path in gone])
    [(finding, operations)] = Leftovers(session, tree).find({})
    assert finding.kind == "group"
    connect().subscribe("jobs", group="workers", partitions=2).close()
    with pytest.raises(TransactionFailed):
        session.multi(operations)
    assert session.exists(tree.ledger("workers", "jobs", 1)) is not None
