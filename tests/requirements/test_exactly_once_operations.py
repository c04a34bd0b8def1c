"""SUB, UNSUB, GET and PUT of an exactly-once messaging service, with every outcome that its authors list.

    200  done                                   a value
    204  nothing new                            None
    304  already subscribed, nothing changed    `created` is False
    403  not subscribed                         NotSubscribed
    404  no such topic                          NoSubscribers
    500  sequence numbers do not match          ProducerFenced, LostOwnership

Each can be told from the others by its type or value. Where the authors' service could only be left after a mismatch,
and where they list circumstances that break it, ours goes on: that is in the tests of E4, E5 and E8.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from zkms.server.server import Server
from zkms.testing import Proxy, expire

TOPIC = "shopping"
PROGRAMS = Path(__file__).parent / "programs"


# -- SUB ---------------------------------------------------------------------------------------------------------------


def test_sub_200_a_new_topic_and_a_new_subscriber(bus: zkms.Bus, connect: Connect) -> None:
    """E3: the topic is made by its first subscriber; a second one joins it."""
    assert bus.subscribe(TOPIC, name="antonio").created
    assert connect().subscribe(TOPIC, name="maria").created
    assert [info.subscription for info in bus.subscriptions(TOPIC)] == ["antonio", "maria"]


def test_sub_304_already_subscribed_changes_nothing(bus: zkms.Bus, connect: Connect) -> None:
    """E3: subscribing again, after a restart too, keeps the place and says that it was there; so does a group."""
    with connect() as before:
        assert before.subscribe(TOPIC, name="antonio").created
        bus.publish(TOPIC, "bananas")
    again = bus.subscribe(TOPIC, name="antonio")
    assert not again.created
    assert again.get(timeout=20).data == "bananas"
    with pytest.raises(zkms.AlreadySubscribed):
        bus.subscribe(TOPIC, name="antonio")
    assert bus.create_group(TOPIC, "workers")
    assert not bus.create_group(TOPIC, "workers")
    assert not connect().subscribe(TOPIC, group="workers").created


def test_sub_by_another_process_at_the_same_time_is_told_who_has_it(bus: zkms.Bus, connect: Connect) -> None:
    """E1: one reader at a time; the second one may take over, when it says so."""
    first = bus.subscribe(TOPIC, name="antonio")
    other = connect()
    with pytest.raises(zkms.SubscriptionInUse) as told:
        other.subscribe(TOPIC, name="antonio")
    assert told.value.owner == bus.client_id
    bus.publish(TOPIC, "bananas")
    unacked = first.get(timeout=20)
    assert other.subscribe(TOPIC, name="antonio", takeover=True).get(timeout=20).data == "bananas"
    with pytest.raises(zkms.LostOwnership):
        unacked.ack()


# -- UNSUB -------------------------------------------------------------------------------------------------------------


def test_unsub_200_gives_the_place_and_its_storage_up(bus: zkms.Bus) -> None:
    """E3, E6: nothing of it is left; the last subscriber's topic has nobody any more."""
    subscription = bus.subscribe(TOPIC, name="antonio")
    bus.publish_many(TOPIC, ["bananas", "eggs"])
    subscription.unsubscribe()
    assert bus.subscriptions(TOPIC) == []
    assert bus.queues() == []
    assert bus.parts.session.children(bus.parts.tree.groups)[0] == []
    with pytest.raises(zkms.NoSubscribers):
        bus.publish(TOPIC, "lemons")
    fresh = bus.subscribe(TOPIC, name="antonio")
    assert fresh.created
    assert fresh.get(timeout=0) is None


def test_unsub_403_what_is_not_subscribed_any_more(bus: zkms.Bus) -> None:
    """E3: a second unsubscribe, and a get() after it, are told so."""
    subscription = bus.subscribe(TOPIC, name="antonio")
    subscription.unsubscribe()
    with pytest.raises(zkms.NotSubscribed):
        subscription.unsubscribe()
    with pytest.raises(zkms.NotSubscribed):
        subscription.get(timeout=0)


def test_unsub_by_somebody_else_is_told_to_whoever_reads(
    bus: zkms.Bus, connect: Connect, eventually: Eventually
) -> None:
    """E3, E7: a get() that waits is told that the subscription is gone, and so is a handler's on_error."""
    told: list[Exception] = []
    waiting = bus.subscribe(TOPIC, name="antonio")
    bus.subscribe(TOPIC, lambda _message: None, group="workers", on_error=lambda error, _message: told.append(error))
    operator = connect()
    with pytest.raises(zkms.SubscriptionInUse):
        operator.parts.durable_registration.dismiss(TOPIC, "antonio")
    operator.parts.durable_registration.dismiss(TOPIC, "antonio", unless_used_by=bus.client_id)
    with pytest.raises(zkms.NotSubscribed):
        waiting.get(timeout=60)
    operator.parts.durable_registration.dismiss(TOPIC, "workers", unless_used_by=bus.client_id)
    eventually(lambda: [type(error) for error in told] == [zkms.NotSubscribed])
    assert bus.subscribe(TOPIC, name="antonio").created


# -- PUT ---------------------------------------------------------------------------------------------------------------


def test_put_200_is_stored_for_every_subscriber(bus: zkms.Bus, connect: Connect) -> None:
    """E3: and its receipt tells when each of them has acked it."""
    subscriptions = [connect().subscribe(TOPIC, name=name) for name in ("antonio", "maria")]
    receipt = bus.publish(TOPIC, "bananas")
    assert sorted(receipt.wait(timeout=0).pending) == ["antonio", "maria"]
    for subscription in subscriptions:
        message = subscription.get(timeout=20)
        assert message.data == "bananas"
        message.ack()
    assert sorted(receipt.wait(timeout=20).acked) == ["antonio", "maria"]


def test_put_404_a_topic_that_nobody_has_made(bus: zkms.Bus) -> None:
    """E3: refused, unless the caller says that it may be dropped."""
    with pytest.raises(zkms.NoSubscribers) as told:
        bus.publish(TOPIC, "bananas")
    assert told.value.topic == TOPIC
    assert bus.publish(TOPIC, "bananas", if_nobody="drop").wait(timeout=0).acked == ()


def test_put_500_a_sequence_number_that_another_process_has_moved(bus: zkms.Bus, connect: Connect) -> None:
    """E3, E4: two processes of one producer's name; the one that was first is fenced, and stores nothing."""
    subscription = bus.subscribe(TOPIC, name="antonio")
    first, second = connect(producer="till"), connect(producer="till")
    first.publish(TOPIC, 1)
    second.publish(TOPIC, 2)
    with pytest.raises(zkms.ProducerFenced):
        first.publish(TOPIC, "too late")
    second.publish(TOPIC, 3)
    assert [subscription.get(timeout=20).data for _ in range(3)] == [1, 2, 3]
    assert subscription.get(timeout=0) is None


# -- GET ---------------------------------------------------------------------------------------------------------------


def test_get_200_and_204(bus: zkms.Bus) -> None:
    """E2: a message, then nothing new: at once, after a while, or not before something comes."""
    subscription = bus.subscribe(TOPIC, name="antonio")
    assert subscription.get(timeout=0) is None
    assert subscription.get(timeout=0.05) is None
    threading.Timer(0.2, bus.publish, (TOPIC, "bananas")).start()
    assert subscription.get().data == "bananas"
    assert subscription.fetch(10, timeout=0) == []


def test_get_500_a_position_that_another_process_has_moved(bus: zkms.Bus, connect: Connect) -> None:
    """E3, E5: the place was taken over meanwhile: the ack is refused with a reason, and moves nothing."""
    subscription = bus.subscribe(TOPIC, name="antonio")
    bus.publish_many(TOPIC, ["bananas", "eggs"])
    message = subscription.get(timeout=20)
    other = connect().subscribe(TOPIC, name="antonio", takeover=True)
    with pytest.raises(zkms.LostOwnership) as told:
        message.ack()
    assert told.value.message_id == message.id
    assert [other.get(timeout=20).data for _ in range(2)] == ["bananas", "eggs"]


def test_a_second_ack_is_neither_silent_nor_done(bus: zkms.Bus) -> None:
    """E5: acked is acked: the second time is told from the first."""
    subscription = bus.subscribe(TOPIC, name="antonio")
    bus.publish(TOPIC, "bananas")
    message = subscription.get(timeout=20)
    message.ack()
    with pytest.raises(zkms.AlreadyAcked):
        message.ack()
    with pytest.raises(zkms.AlreadyAcked):
        subscription.ack([message])


# -- the guarantees around them ----------------------------------------------------------------------------------------


def test_a_subscriber_that_was_away_gets_all_that_was_published_meanwhile(bus: zkms.Bus, connect: Connect) -> None:
    """E1: from the moment subscribe() has returned, given enough get() calls."""
    with connect() as before:
        before.subscribe(TOPIC, name="antonio")
    bus.publish_many(TOPIC, range(1000))
    subscription = bus.subscribe(TOPIC, name="antonio")
    got: list[object] = []
    while len(got) < 1000:
        batch = subscription.fetch(300, timeout=20)
        subscription.ack(batch)
        got += [message.data for message in batch]
    assert got == list(range(1000))


def test_a_named_producer_goes_on_with_its_numbers(bus: zkms.Bus, connect: Connect) -> None:
    """E4: after a restart the next message has the next number."""
    subscription = bus.subscribe(TOPIC, name="antonio")
    for data in ("bananas", "eggs"):
        with connect(producer="till") as till:
            till.publish(TOPIC, data)
    got = [subscription.get(timeout=20) for _ in range(2)]
    assert [(message.producer, message.data) for message in got] == [("till", "bananas"), ("till", "eggs")]
    assert got[1].seq == got[0].seq + 1


def test_a_put_whose_reply_is_lost_is_stored_once(
    bus: zkms.Bus, connect: Connect, zookeeper: Server, eventually: Eventually
) -> None:
    """E4: the transaction is carried out and its answer never arrives."""
    subscription = bus.subscribe(TOPIC, name="antonio")
    with Proxy(zookeeper.hosts) as proxy:
        till = connect(hosts=proxy.hosts)
        till.publish(TOPIC, "bananas")
        cut = proxy.cut_reply(op="multi")
        till.publish(TOPIC, "eggs", timeout=30)
        assert cut.is_set()
        till.publish(TOPIC, "lemons", timeout=30)
        till.close()
    assert [subscription.get(timeout=20).data for _ in range(3)] == ["bananas", "eggs", "lemons"]
    assert subscription.get(timeout=0) is None


def test_a_get_is_repeated_until_it_is_acked_and_never_after(connect: Connect, bus: zkms.Bus) -> None:
    """E5: a reader that goes away without an ack gets the same message again, with it the others not acked."""
    bus.subscribe(TOPIC, name="antonio").close()
    bus.publish_many(TOPIC, ["bananas", "eggs", "lemons"])
    for expected, acked in (("bananas", False), ("bananas", True), ("eggs", False), ("eggs", True), ("lemons", True)):
        with connect() as reader:
            message = reader.subscribe(TOPIC, name="antonio").get(timeout=20)
            assert message.data == expected
            if acked:
                message.ack()
    assert bus.subscribe(TOPIC, name="antonio").get(timeout=0) is None


def test_what_every_subscriber_has_consumed_is_removed(bus: zkms.Bus, connect: Connect, eventually: Eventually) -> None:
    """E6: entries, and the body that several queues point to."""
    subscriptions = [connect().subscribe(TOPIC, name=name) for name in ("antonio", "maria", "joana")]
    bus.publish(TOPIC, "x" * 100_000)
    assert len(bus.parts.session.children(bus.parts.tree.bodies_of(bus.client_id))[0]) == 1
    for subscription in subscriptions:
        subscription.get(timeout=20).ack()
    assert [queue.entries for queue in bus.queues()] == [0, 0, 0]
    eventually(lambda: bus.parts.session.children(bus.parts.tree.bodies_of(bus.client_id))[0] == [])


def test_nobody_hangs_when_zookeeper_does_not_answer(connect: Connect, zookeeper: Server) -> None:
    """E7: each operation raises after its time-out, and a get() says that there is nothing."""
    with Proxy(zookeeper.hosts) as proxy:
        bus = connect(hosts=proxy.hosts, request_timeout=1.0, session_timeout=60.0)
        subscription = bus.subscribe(TOPIC, name="antonio")
        bus.publish_many(TOPIC, ["bananas", "eggs"])
        message = subscription.get(timeout=20)
        proxy.refuse()
        proxy.drop()
        with pytest.raises(zkms.ConnectionLost):
            bus.publish(TOPIC, "lemons")
        with pytest.raises(zkms.ConnectionLost):
            message.ack()
        with pytest.raises(zkms.ConnectionLost):
            bus.subscribe(TOPIC, name="maria")
        assert subscription.get(timeout=0.1) is None
        proxy.heal()
        assert subscription.get(timeout=60).data == "eggs"  # the ack was kept, and stored when it could be


def test_a_reader_whose_session_expires_goes_on_without_a_gap(bus: zkms.Bus, connect: Connect) -> None:
    """E7, E8: a durable subscription has nothing ephemeral that messages depend on."""
    gaps: list[object] = []
    reader = connect()
    subscription = reader.subscribe(TOPIC, name="antonio", on_gap=gaps.append)
    for number in range(3):
        bus.publish(TOPIC, number)
        expire(reader)
        message = subscription.get(timeout=60)
        assert message.data == number
        message.ack()
    assert gaps == []


@pytest.mark.parametrize("moment", ["before the ack", "after the ack"])
def test_a_reader_that_is_killed_loses_nothing_and_repeats_nothing_that_it_acked(
    bus: zkms.Bus, zookeeper: Server, zookeeper_root: str, moment: str
) -> None:
    """E8: kill -9 at either side of the only instruction that counts."""
    bus.subscribe(TOPIC, name="antonio").close()
    bus.publish_many(TOPIC, range(3))
    command = [sys.executable, PROGRAMS / "killed.py", zookeeper.hosts, zookeeper_root, TOPIC, moment]
    assert subprocess.run(command, check=False, timeout=60).returncode == -9
    subscription = bus.subscribe(TOPIC, name="antonio", takeover=True)
    got = [subscription.get(timeout=20).data for _ in range(3 if moment == "before the ack" else 2)]
    assert got == [0, 1, 2][-len(got) :]
    assert subscription.get(timeout=0) is None
