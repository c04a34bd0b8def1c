"""Consume and publish as one: both are stored, or neither."""

from __future__ import annotations

import pytest

import zkms
from tests.support.buses import Connect
from zkms import AlreadyAcked, Bus, Closed, InvalidArgument, LostOwnership, NoSubscribers
from zkms.server.server import Server
from zkms.testing import Proxy


def take(sub: zkms.Consumer) -> zkms.Message:
    """The next message, which must come."""
    message = sub.get(timeout=10)
    assert message is not None
    return message


def test_both_are_stored(bus: Bus, connect: Connect) -> None:
    """What is acked never comes again, what is published arrives."""
    worker = connect()
    orders, invoices = worker.subscribe("orders", name="billing"), bus.subscribe("invoices", name="post")
    bus.publish("orders", 7)
    with worker.transaction() as tx:
        tx.ack(take(orders))
        tx.publish("invoices", {"order": 7})
    assert tx.receipts[0].pending == ("post",)
    assert take(invoices).data == {"order": 7}
    orders.close()
    assert worker.subscribe("orders", name="billing").get(timeout=0.2) is None


def test_a_block_that_raises_stores_neither(bus: Bus, connect: Connect) -> None:
    """The message can still be acked, or comes again."""
    worker = connect()
    orders, invoices = worker.subscribe("orders", name="billing"), bus.subscribe("invoices", name="post")
    bus.publish("orders", 7)
    message = take(orders)
    tx = worker.transaction()
    with pytest.raises(KeyError), tx:
        _raise_after(tx, message)
    assert invoices.get(timeout=0.2) is None
    message.ack()


def _raise_after(tx: zkms.Transaction, message: zkms.Message) -> None:
    tx.ack(message)
    tx.publish("invoices", 7)
    raise KeyError


def test_one_that_cannot_be_published_acks_nothing(bus: Bus, connect: Connect) -> None:
    """Nobody subscribes: the message stays in hand."""
    worker = connect()
    orders = worker.subscribe("orders", name="billing")
    bus.publish("orders", 7)
    message = take(orders)
    tx = worker.transaction()
    tx.ack(message)
    tx.publish("nowhere", 7)
    with pytest.raises(NoSubscribers):
        tx.commit()
    message.ack()


def test_one_whose_place_was_taken_publishes_nothing(bus: Bus, connect: Connect) -> None:
    """The new reader will do it."""
    worker = connect()
    orders, invoices = worker.subscribe("orders", name="billing"), bus.subscribe("invoices", name="post")
    bus.publish("orders", 7)
    message = take(orders)
    successor = connect().subscribe("orders", name="billing", takeover=True)
    tx = worker.transaction()
    tx.ack(message)
    tx.publish("invoices", 7)
    with pytest.raises(LostOwnership):
        tx.commit()
    assert invoices.get(timeout=0.2) is None
    assert take(successor).data == 7


def test_several_messages_and_topics_are_one(bus: Bus, connect: Connect) -> None:
    """Of several partitions too."""
    worker = connect()
    jobs = worker.subscribe("jobs", group="workers", partitions=4)
    ends = {topic: bus.subscribe(topic, name="end") for topic in ("left", "right")}
    bus.publish_many("jobs", range(8), key=str)
    got: list[zkms.Message] = []
    while len(got) < 8:
        got += jobs.fetch(8, timeout=10)
    with worker.transaction() as tx:
        for message in got:
            tx.ack(message)
            tx.publish("left" if message.data % 2 else "right", message.data)
    for remainder, topic in ((1, "left"), (0, "right")):
        arrived: list[zkms.Message] = []
        while len(arrived) < 4:
            arrived += ends[topic].fetch(4, timeout=10)
        assert sorted(m.data for m in arrived) == [n for n in range(8) if n % 2 == remainder]
    assert sum(queue.entries for queue in bus.queues() if queue.topic == "jobs") == 0


def test_acks_alone_are_a_transaction_too(bus: Bus, connect: Connect) -> None:
    """All or none of them."""
    worker = connect()
    sub = worker.subscribe("orders", name="billing")
    bus.publish_many("orders", range(3))
    got = sub.fetch(3, timeout=10)
    with worker.transaction() as tx:
        for message in got:
            tx.ack(message)
    assert [queue.entries for queue in bus.queues()] == [0]


@pytest.mark.parametrize("attempt", range(3))
def test_a_lost_reply_neither_repeats_nor_loses(zookeeper: Server, bus: Bus, connect: Connect, attempt: int) -> None:
    """The connection is cut after the commit: once acked, once published."""
    with Proxy(zookeeper.hosts) as proxy:
        worker = connect(hosts=proxy.hosts)
        orders, invoices = worker.subscribe("orders", name="billing"), bus.subscribe("invoices", name="post")
        bus.publish("orders", attempt)
        message = take(orders)
        with worker.transaction(timeout=30) as tx:
            tx.ack(message)
            tx.publish("invoices", attempt)
            cut = proxy.cut_reply(op="multi")
        assert cut.wait(10)
        assert take(invoices).data == attempt
        assert invoices.get(timeout=0.2) is None
        assert orders.get(timeout=0.2) is None
        bus.publish("orders", "next")
        take(orders).ack()
        worker.close()


def test_bad_input_has_its_own_words(bus: Bus, connect: Connect) -> None:
    """A foreign or twice-acked message, a live one, a transaction that is over."""
    worker = connect()
    orders, live = worker.subscribe("orders", name="billing"), worker.subscribe("orders")
    bus.publish("orders", 7)
    message, gone = take(orders), live.get(timeout=10)
    assert gone is not None
    with bus.transaction() as tx:
        with pytest.raises(InvalidArgument, match="another bus"):
            tx.ack(message)
        with pytest.raises(InvalidArgument, match="is live"):
            tx.ack(gone)
    with worker.transaction() as tx:
        tx.ack(message)
        with pytest.raises(AlreadyAcked):
            tx.ack(message)
    with pytest.raises(Closed, match="is over"):
        tx.publish("orders", 1)
    with pytest.raises(AlreadyAcked):
        message.ack()
