"""The producer's node: what is known after a lost reply, and what is not claimed to be."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.support.buses import Connect
from zkms import Bus, ConnectionLost, ProducerFenced, StoreError, Subscription
from zkms.publish.producer import WINDOW, Producer
from zkms.testing import Proxy
from zkms.tree.paths import Tree
from zkms.tree.records import ProducerState, encode


@pytest.fixture
def producer(bus: Bus) -> Producer:
    """A producer that has claimed its node and numbered seven messages, of which five are stored."""
    producer = Producer(bus.parts.session, bus.parts.tree, "billing", bus.client_id)
    assert producer.fence() == 0
    bus.parts.session.multi([producer.advance(5)])
    producer.advance(7)
    producer.seq = 7
    return producer


def check_a_fence_voids_what_was_sent_before(bus: Bus, producer: Producer) -> None:
    """Fail if any transaction of a full window can be carried out after the fence."""
    in_flight = [producer.advance(8 + number) for number in range(WINDOW - 1)]
    assert producer.fence() == 5
    for late in in_flight:
        with pytest.raises(StoreError):
            bus.parts.session.multi([late])
    bus.parts.session.multi([producer.advance(100)])
    assert producer.fence() == 100


def test_a_fence_tells_what_is_stored_and_voids_what_was_sent_before(bus: Bus, producer: Producer) -> None:
    """A server may read requests from a connection that the client gave up: none of them may come through."""
    check_a_fence_voids_what_was_sent_before(bus, producer)


def test_a_fence_of_one_step_would_let_the_second_in_flight_through(
    bus: Bus, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking the fence on purpose: it would make room for exactly the wrong transaction."""
    monkeypatch.setattr("zkms.publish.producer.WINDOW", 1)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_a_fence_voids_what_was_sent_before(bus, producer)


def test_a_restarted_producer_voids_what_its_predecessor_sent(bus: Bus, producer: Producer) -> None:
    """Also if the server reads it only now."""
    in_flight = [producer.advance(8 + number) for number in range(WINDOW - 1)]
    successor = Producer(bus.parts.session, bus.parts.tree, "billing", "another client")
    assert successor.fence() == 5
    for late in in_flight:
        with pytest.raises(StoreError):
            bus.parts.session.multi([late])


def test_a_fence_that_finds_the_node_removed_knows_nothing(producer: Producer, raw: KazooClient, tree: Tree) -> None:
    """And the numbers go on."""
    raw.delete(tree.producer("billing"))
    assert producer.fence() is None
    assert producer.seq == 7
    assert producer.fence() == 7


def test_a_lost_answer_to_making_the_node_again_does_not_pass_for_knowledge(
    bus: Bus, producer: Producer, raw: KazooClient, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new node has the last number given, which says nothing about what was stored."""
    raw.delete(tree.producer("billing"))
    multi = bus.parts.session.multi

    def lose_the_answer(*args: object, **kwargs: object) -> None:
        monkeypatch.setattr(bus.parts.session, "multi", multi)
        multi(*args, **kwargs)
        raise ConnectionLost("cut")

    monkeypatch.setattr(bus.parts.session, "multi", lose_the_answer)
    with pytest.raises(ConnectionLost):
        producer.fence()
    assert producer.fence() is None


def test_a_node_taken_by_another_client_fences_us(producer: Producer, raw: KazooClient, tree: Tree) -> None:
    """Whoever came later has it."""
    raw.set(tree.producer("billing"), encode(ProducerState("somebody else", 9)))
    with pytest.raises(ProducerFenced, match="somebody else"):
        producer.fence()


def test_two_processes_of_one_client_id_fence_each_other(connect: Connect) -> None:
    """The newer one goes on; the other hears of it, and its messages are not taken for those that are stored."""
    older, newer = (connect(client_id="node-1") for _ in range(2))
    sub = connect().subscribe("users")
    older.publish("users", "older")
    for number in range(3):
        newer.publish("users", number)
    with pytest.raises(ProducerFenced):
        older.publish("users", "lost")
    assert [sub.get(timeout=5).data for _ in range(4)] == ["older", 0, 1, 2]
    assert sub.get(timeout=0.2) is None


def check_a_lost_reply_leads_to_one_copy(bus: Bus, proxy: Proxy, sub: Subscription) -> None:
    """Fail unless a publish whose transaction was carried out, and whose reply never came, is stored once."""
    bus.publish("users", "first")
    cut = proxy.cut_reply(op="multi")
    bus.publish("users", "cut", timeout=20)
    assert cut.is_set()
    bus.publish("users", "last", timeout=20)
    assert [sub.get(timeout=5).data for _ in range(3)] == ["first", "cut", "last"]
    assert sub.get(timeout=0.2) is None


def test_a_lost_reply_leads_to_one_copy(connect: Connect, proxy: Proxy) -> None:
    """The number stored with the messages tells that they are there."""
    sub = connect().subscribe("users")
    check_a_lost_reply_leads_to_one_copy(connect(hosts=proxy.hosts), proxy, sub)


def test_without_the_producers_number_a_lost_reply_would_lead_to_two_copies(
    connect: Connect, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking the mechanism on purpose: a fence that claims to know of nothing stored."""
    fence = Producer.fence

    def forgetful(self: Producer) -> int | None:
        fence(self)
        return 0

    monkeypatch.setattr(Producer, "fence", forgetful)
    sub = connect().subscribe("users")
    with pytest.raises(AssertionError):
        check_a_lost_reply_leads_to_one_copy(connect(hosts=proxy.hosts), proxy, sub)
