"""A put and a get, each cut off at every request of the exchange, before and after the server has carried it out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import zkms
from tests.guarantees.test_exactly_once import cuts, requests_of
from tests.support.buses import Connect
from zkms.consume.ledger_commits import Ownership
from zkms.testing import Proxy

pytestmark = pytest.mark.on_one_server

TOPIC = "orders"


def next_of(subscription: zkms.Consumer) -> zkms.Message:
    """The next message, which must come."""
    message = subscription.get(timeout=30)
    assert message is not None
    return message


def test_a_put_is_stored_once_for_durable_subscribers_and_groups(connect: Connect, proxy: Proxy) -> None:
    """Whichever request of the publish is lost, each of them gets each message once, in order."""
    reader = connect()
    durable = reader.subscribe(TOPIC, name="audit")
    group = reader.subscribe(TOPIC, group="workers", partitions=1)
    bus = connect(through=proxy)
    expected = ["first", "nothing lost"]
    bus.publish(TOPIC, "first")
    requests = requests_of(proxy, lambda: bus.publish(TOPIC, "nothing lost"))
    for case in cuts(proxy, requests):
        expected.append(case)
        bus.publish(TOPIC, case, timeout=30)
    for subscription in (durable, group):
        got = [next_of(subscription) for _ in expected]
        assert [message.data for message in got] == expected
        subscription.ack(got)
        assert subscription.get(timeout=0) is None


@pytest.mark.parametrize("kind", [{"name": "audit"}, {"group": "workers", "partitions": 1}], ids=["durable", "group"])
def test_a_get_and_its_ack_are_done_once(connect: Connect, proxy: Proxy, kind: dict[str, object]) -> None:
    """Whichever request of the reader is lost, a message is given out once, and its ack is stored."""
    bus, reader = connect(), connect(through=proxy)
    subscription = reader.subscribe(TOPIC, **kind)

    def exchange(data: str) -> None:
        bus.publish(TOPIC, data)
        message = next_of(subscription)
        assert (message.data, message.attempts) == (data, 1)
        message.ack()

    exchange("first")
    requests = requests_of(proxy, lambda: exchange("nothing lost"))
    for case in cuts(proxy, max(2, min(requests, 4))):
        exchange(case)
        assert [queue.entries for queue in bus.queues()] == [0], case
    assert subscription.get(timeout=0) is None


def test_without_asking_the_ledger_an_ack_whose_reply_is_lost_looks_refused(
    connect: Connect, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation: sent again, the ack finds a version that is not its own any more, and is taken for a loss."""
    judge = Ownership._judge

    def forgetful(ownership: Ownership, commit: object, value: object, problem: object) -> None:
        commit.unsure = False  # type: ignore[attr-defined]
        judge(ownership, commit, value, problem)  # type: ignore[arg-type]

    monkeypatch.setattr(Ownership, "_judge", forgetful)
    subscription = connect(through=proxy).subscribe(TOPIC, name="audit")
    connect().publish(TOPIC, 1)
    message = next_of(subscription)
    proxy.cut_reply(op="multi")
    with pytest.raises(zkms.LostOwnership):
        message.ack()


def test_an_ack_of_which_nobody_can_tell_says_so(connect: Connect, proxy: Proxy) -> None:
    """Stored, its reply lost, and the place taken over before it could be asked for: the ledger has moved on."""
    reader, other = connect(through=proxy), connect()
    subscription = reader.subscribe(TOPIC, name="audit")
    other.publish(TOPIC, 1)
    message = next_of(subscription)
    cut = proxy.cut_reply(op="multi")
    proxy.refuse()
    with ThreadPoolExecutor(1) as pool:
        acking = pool.submit(message.ack)
        assert cut.wait(30)
        successor = other.subscribe(TOPIC, name="audit", takeover=True)
        proxy.accept()
        with pytest.raises(zkms.LostOwnership, match="cannot be told") as told:
            acking.result(60)
    assert told.value.outcome_unknown
    assert successor.get(timeout=0.5) is None  # it was stored


def test_a_durable_subscribe_survives_the_loss_of_any_of_its_requests(connect: Connect, proxy: Proxy) -> None:
    """When subscribe() returns it is registered once, we have it, and what is published comes once."""
    bus, reader = connect(), connect(through=proxy)
    names = iter(f"audit-{number}" for number in range(1000))

    def subscribe() -> zkms.Consumer:
        return reader.subscribe(TOPIC, name=next(names))

    subscribe().close()
    requests = requests_of(proxy, lambda: subscribe().close())
    for case in cuts(proxy, requests):
        subscription = subscribe()
        assert subscription.created, case
        bus.publish(TOPIC, case)
        message = next_of(subscription)
        assert message.data == case
        message.ack()
        assert subscription.get(timeout=0) is None
        subscription.unsubscribe()
