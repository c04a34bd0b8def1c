"""Durable subscriptions: kept while nobody reads them, read by one process at a time, exactly once per ack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from zkms import AlreadyAcked, AlreadySubscribed, Bus, InvalidArgument, LostOwnership, NotSubscribed, SubscriptionInUse
from zkms.consume.ledger_commits import Ownership
from zkms.tree.entry import parse_entry
from zkms.tree.records import Ledger, decode
from zkms.zookeeper.deletion import delete_children, delete_queue

pytestmark = pytest.mark.on_asyncio_too


def test_what_is_published_while_nobody_reads_waits(bus: Bus, connect: Connect) -> None:
    """The subscription is registered once; its reader may come and go."""
    reader = connect()
    first = reader.subscribe("users", name="audit")
    assert first.created
    reader.close()
    bus.publish_many("users", range(10))
    again = connect().subscribe("users", name="audit")
    assert not again.created
    assert [message.data for message in again.fetch(20, timeout=10)] == list(range(10))


def test_what_is_not_acked_comes_again_and_what_is_acked_never(bus: Bus, connect: Connect) -> None:
    """Also where both travelled in one frame: the place inside it is kept."""
    reader = connect()
    sub = reader.subscribe("users", name="audit")
    bus.publish_many("users", range(10))
    messages = sub.fetch(10, timeout=10)
    for message in (messages[0], messages[1], messages[5]):
        message.ack()
    sub.close()
    again = reader.subscribe("users", name="audit")
    assert [message.data for message in again.fetch(20, timeout=10)] == [2, 3, 4, 6, 7, 8, 9]
    assert again.get(timeout=0) is None


def test_many_are_acked_at_once(bus: Bus, connect: Connect) -> None:
    """One transaction for all of them; their entries are gone."""
    sub = connect().subscribe("users", name="audit")
    for number in range(5):
        bus.publish("users", number)
    messages: list[zkms.Message] = []
    while len(messages) < 5:
        messages += sub.fetch(5, timeout=10)
    sub.ack(messages)
    assert [queue.entries for queue in bus.queues()] == [0]
    with pytest.raises(AlreadyAcked):
        sub.ack(messages[:1])


def test_a_handler_acks_by_returning(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """And what it has returned from is not delivered to the next reader."""
    seen: list[int] = []
    reader = connect()
    sub = reader.subscribe("users", lambda message: seen.append(message.data), name="audit")
    bus.publish_many("users", range(100))
    eventually(lambda: len(seen) == 100)
    sub.close()
    assert seen == list(range(100))
    assert reader.subscribe("users", name="audit").get(timeout=0.2) is None


def test_a_loop_acks_when_it_comes_back(bus: Bus, connect: Connect) -> None:
    """The message in hand when the loop is left is not acked."""
    reader = connect()
    sub = reader.subscribe("users", name="audit")
    bus.publish_many("users", range(5))
    for message in sub:
        if message.data == 3:
            break
    sub.close()
    assert [message.data for message in reader.subscribe("users", name="audit").fetch(9, timeout=10)] == [3, 4]


def test_a_second_reader_is_told_who_reads(bus: Bus, connect: Connect) -> None:
    """It gets nothing, and the first one goes on."""
    reader = connect()
    sub = reader.subscribe("users", name="audit")
    with pytest.raises(SubscriptionInUse) as refused:
        connect().subscribe("users", name="audit")
    assert refused.value.owner == reader.client_id
    bus.publish("users", 1)
    message = sub.get(timeout=10)
    assert message is not None
    message.ack()


def test_a_reader_that_is_asked_to_takes_over(bus: Bus, connect: Connect) -> None:
    """The former one cannot ack any more, and is told so; the message is the new one's."""
    former = connect().subscribe("users", name="audit")
    bus.publish("users", "mine")
    held = former.get(timeout=10)
    assert held is not None
    successor = connect().subscribe("users", name="audit", takeover=True)
    with pytest.raises(LostOwnership):
        held.ack()
    message = successor.get(timeout=10)
    assert message is not None
    assert message.data == "mine"
    message.ack()


def test_without_the_fence_both_would_ack(bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaking it on purpose: acks at any version let the former reader ack what the new one reads."""
    former = connect().subscribe("users", name="audit")
    bus.publish("users", "mine")
    held = former.get(timeout=10)
    assert held is not None
    connect().subscribe("users", name="audit", takeover=True)
    monkeypatch.setattr(held.entry.dispatcher.ownership, "_version", -1)
    held.ack()


def test_each_reader_has_an_epoch_of_its_own(bus: Bus, connect: Connect) -> None:
    """Ascending: trails and people tell by it who owned the place when."""
    epochs = []
    for _ in range(3):
        reader = connect()
        reader.subscribe("users", name="audit")
        data, _stat = bus.parts.session.get(bus.parts.tree.ledger("audit", "users", 0))
        epochs.append(decode(data, Ledger).epoch)
        reader.close()
    assert epochs == [1, 2, 3]


def test_unsubscribe_gives_the_place_up_and_frees_all(bus: Bus, connect: Connect) -> None:
    """Nothing of it is left; publishing finds nobody, and subscribing again makes it anew."""
    sub = connect().subscribe("users", name="audit")
    bus.publish_many("users", range(10))
    sub.unsubscribe()
    assert bus.queues() == []
    assert bus.subscriptions("users") == []
    assert bus.parts.session.children(bus.parts.tree.groups)[0] == []
    with pytest.raises(zkms.NoSubscribers):
        bus.publish("users", 1)
    with pytest.raises(NotSubscribed):
        sub.get()
    assert connect().subscribe("users", name="audit").created


def test_one_name_may_be_used_for_several_topics(bus: Bus, connect: Connect) -> None:
    """They have nothing to do with each other."""
    reader = connect()
    users, orders = reader.subscribe("users", name="audit"), reader.subscribe("orders", name="audit")
    bus.publish("users", "u")
    bus.publish("orders", "o")
    for sub, expected in ((users, "u"), (orders, "o")):
        message = sub.get(timeout=10)
        assert message is not None
        assert message.data == expected
    users.unsubscribe()
    assert [info.subscription for info in bus.subscriptions("orders")] == ["audit"]


def test_order_is_kept_across_a_message_that_fails(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Those behind it wait."""
    seen: list[tuple[int, int]] = []

    def handle(message: zkms.Message) -> None:
        seen.append((message.data, message.attempts))
        if message.data == 2 and message.attempts < 3:
            raise ValueError("not yet")

    connect().subscribe("users", handle, name="audit", backoff=0.01)
    bus.publish_many("users", range(5))
    eventually(lambda: len(seen) == 7)
    assert seen == [(0, 1), (1, 1), (2, 1), (2, 2), (2, 3), (3, 1), (4, 1)]


def test_a_live_and_a_durable_subscription_get_the_same(bus: Bus, connect: Connect) -> None:
    """There is one publish path."""
    reader = connect()
    live, durable = reader.subscribe("users"), reader.subscribe("users", name="audit")
    receipt = bus.publish("users", "both")
    assert len(receipt.pending) == 2
    for sub in (live, durable):
        message = sub.get(timeout=10)
        assert message is not None
        assert message.data == "both"
        message.ack() if sub is durable else None
    assert set(receipt.wait(10).acked) == {live.id, "audit"}


def test_bad_input_has_its_own_words(bus: Bus, connect: Connect) -> None:
    """Nothing is sent."""
    bus.subscribe("users", name="audit")
    with pytest.raises(AlreadySubscribed, match="as 'audit' already"):
        bus.subscribe("users", name="audit")
    with pytest.raises(InvalidArgument, match="not both"):
        bus.subscribe("users", name="a", group="b")  # type: ignore[call-overload]
    with pytest.raises(InvalidArgument, match="'#'"):
        bus.subscribe("users", name="a#1")
    with pytest.raises(InvalidArgument, match="partitions is for groups"):
        bus.subscribe("users", name="a", partitions=3)  # type: ignore[call-overload]
    with pytest.raises(zkms.GroupMismatch, match="is a durable subscription"):
        connect().subscribe("users", group="audit", partitions=1)


def test_a_session_that_expires_loses_nothing(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """The place is kept by ZooKeeper, not by the session; what is in hand can still be acked."""
    reader = connect(session_timeout=4.0)
    sub = reader.subscribe("users", name="audit")
    bus.publish_many("users", range(3))
    held = sub.fetch(2, timeout=10)
    zkms.testing.expire(reader)
    sub.ack(held)
    bus.publish("users", 3)
    rest = []
    while len(rest) < 2:
        rest += sub.fetch(5, timeout=10)
    assert [message.data for message in rest] == [2, 3]
    eventually(lambda: bus.parts.durable_registration.members("users", "audit") == [reader.client_id])


def test_a_hold_that_cannot_tell_asks_the_ledger(bus: Bus, connect: Connect) -> None:
    """A claim of ours is known as such, whoever else has touched the tree."""
    reader = connect()
    sub = reader.subscribe("users", name="audit")
    ownership = sub.dispatchers[0].ownership
    assert isinstance(ownership, Ownership)
    ownership.verify()
    assert ownership.lost is None
    connect().subscribe("users", name="audit", takeover=True)
    ownership.verify()
    assert ownership.lost is not None


def test_a_queue_that_somebody_removes_is_made_anew_and_said(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """What was in it is missed: that is a gap, and what is published afterwards arrives."""
    gaps: list[zkms.Gap] = []
    sub = connect().subscribe("users", name="audit", on_gap=gaps.append)
    bus.publish_many("users", range(3))
    assert len(sub.fetch(2, timeout=10)) == 2
    delete_queue(bus.parts.session, bus.parts.tree.queue("audit", "users"))
    eventually(lambda: bus.parts.session.exists(bus.parts.tree.queue("audit", "users")) is not None)
    bus.publish("users", "after")
    message = sub.get(timeout=10)
    while message is not None and message.data != "after":
        message = sub.get(timeout=10)
    assert message is not None
    message.ack()
    assert [gap.reason for gap in gaps]


@pytest.mark.of_threads
def test_acks_that_nobody_waits_for_are_stored_all_the_same(bus: Bus, connect: Connect) -> None:
    """Soon; at the latest when the subscription is closed."""
    reader = connect()
    sub = reader.subscribe("users", name="audit")
    bus.publish_many("users", range(20))
    sub.ack(sub.fetch(20, timeout=10), wait=False)
    sub.close()
    assert [queue.entries for queue in bus.queues()] == [0]


def test_the_first_message_after_a_reader_that_was_replaced_can_be_given_back_and_acked(
    bus: Bus, connect: Connect
) -> None:
    """It was noted in the ledger before it was given out; given out again, it is the second attempt, and acked."""
    connect().subscribe("users", name="audit")
    sub = connect().subscribe("users", name="audit", takeover=True, max_attempts=None)
    bus.publish_many("users", range(2))
    message = sub.get(timeout=10)
    assert message is not None
    message.nak(delay=0)
    again = sub.get(timeout=10)
    assert again is not None
    assert (again.data, again.attempts) == (0, 2)
    again.ack()
    following = sub.get(timeout=10)
    assert following is not None
    assert following.data == 1


def test_the_ledger_forgets_entries_that_others_have_removed(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """What was half done when it was dropped or purged would stay in it for ever, and it would grow."""
    reader = connect()
    subscription = reader.subscribe("users", name="audit")
    bus.publish_many("users", range(3))
    subscription.fetch(3, timeout=10)[0].ack()
    reader.close()
    path = bus.parts.tree.ledger("audit", "users", 0)
    assert set(decode(bus.parts.session.get(path)[0], Ledger).parts) == {0}
    delete_children(bus.parts.session, bus.parts.tree.queue("audit", "users"))
    again = connect().subscribe("users", name="audit")
    eventually(lambda: decode(bus.parts.session.get(path)[0], Ledger).parts == {})
    bus.publish("users", 3)
    message = again.get(timeout=10)
    assert message is not None
    assert message.data == 3
    message.ack()


def dropping(bus: Bus, connect: Connect, on_gap: Callable[[zkms.Gap], object]) -> tuple[Any, list[Any]]:
    """A reader that has a frame of two messages in hand, which was dropped; then came three, and the gap is next."""
    sub = connect().subscribe("users", name="latest", limit=4, overflow="drop-oldest", on_gap=on_gap)
    bus.publish_many("users", range(2))
    held = sub.fetch(2, timeout=10)
    assert [message.data for message in held] == [0, 1]
    for number in range(2, 5):
        bus.publish("users", number)
    return sub, held


def gap_entries(bus: Bus) -> list[str]:
    """Gaps in that reader's queue."""
    return [
        name for name in bus.parts.session.children(bus.parts.tree.queue("latest", "users"))[0] if parse_entry(name).gap
    ]


def test_a_gap_is_told_before_a_message_from_behind_it_is_given_out(bus: Bus, connect: Connect) -> None:
    """Not with the call after: its caller would take that message for the next one."""
    gaps: list[zkms.Gap] = []
    sub, _ = dropping(bus, connect, gaps.append)
    assert [(sub.get(timeout=10).data, len(gaps)) for _ in range(3)] == [(2, 0), (3, 0), (4, 1)]


def test_messages_that_are_fetched_together_have_no_gap_between_them(bus: Bus, connect: Connect) -> None:
    """What comes before a gap is in the caller's hands when that is told; a batch ends there."""
    gaps: list[zkms.Gap] = []
    sub, _ = dropping(bus, connect, gaps.append)
    batches = []
    while sum(map(len, batches)) < 3:
        batches.append([message.data for message in sub.fetch(10, timeout=10)])
        if 4 not in batches[-1]:
            assert not gaps
    assert batches[-1][0] == 4
    assert len(gaps) == 1


def test_a_gap_stays_in_the_queue_until_it_was_told(bus: Bus, connect: Connect) -> None:
    """A reader that dies before it was told, or while it is, leaves it to the next one."""
    seen: list[list[str]] = []
    subscriptions: list[Any] = []

    def on_gap(_gap: zkms.Gap) -> None:
        assert subscriptions[0].dispatchers[0].ownership.drain(10.0)
        seen.append(gap_entries(bus))

    sub, held = dropping(bus, connect, on_gap)
    subscriptions.append(sub)
    for message in [*held, sub.get(timeout=10), sub.get(timeout=10)]:
        message.ack()
    last = sub.get(timeout=10)
    assert [len(names) for names in seen] == [1]
    last.ack()
    assert gap_entries(bus) == []


def test_a_gap_is_told_again_while_a_message_before_it_is_not_acked(bus: Bus, connect: Connect) -> None:
    """What was dropped while it was in a reader's hands does not come again if that one dies: the next one hears so."""
    gaps: list[zkms.Gap] = []
    sub, held = dropping(bus, connect, gaps.append)
    for _ in range(3):
        sub.get(timeout=10).ack()
    held[0].ack()
    assert len(gaps) == 1
    again: list[zkms.Gap] = []
    other = connect().subscribe("users", name="latest", takeover=True, on_gap=again.append)
    assert other.get(timeout=2) is None
    assert [gap.reason for gap in again] == [gap.reason for gap in gaps]
    assert other.get(timeout=0.1) is None
    assert other.dispatchers[0].ownership.drain(10.0)
    assert gap_entries(bus) == []


def test_nothing_is_noted_of_an_entry_that_is_known_to_be_gone(bus: Bus, connect: Connect) -> None:
    """Its messages are in hand and can be acked, but it does not come again: the ledger would only grow by it."""
    sub, held = dropping(bus, connect, lambda _gap: None)
    for _ in range(3):
        sub.get(timeout=10).ack()
    path = bus.parts.tree.ledger("latest", "users", 0)
    held[0].ack()
    assert decode(bus.parts.session.get(path)[0], Ledger).parts == {}
    held[1].ack()
    assert sub.dispatchers[0].ownership.drain(10.0)
    assert decode(bus.parts.session.get(path)[0], Ledger).parts == {}
    assert bus.parts.session.children(bus.parts.tree.queue("latest", "users"))[0] == []
