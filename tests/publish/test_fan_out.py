"""A message goes to every subscription or to none, because it is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.buses import Connect
from zkms import Bus, TransactionFailed
from zkms.tree.paths import Tree
from zkms.zookeeper.operations import Operation
from zkms.zookeeper.session import Session


def check_nobody_gets_half_a_fan_out(bus: Bus, connect: Connect, raw: KazooClient, tree: Tree) -> None:
    """Fail if a fan-out that ZooKeeper refuses at its first queue does not reach the others, once."""
    subs = sorted((connect().subscribe("users", ack="manual") for _ in range(3)), key=lambda sub: sub.id)
    bus.publish("users", "before")
    queues = [tree.queue(sub.id, "users") for sub in subs]
    # The publisher does not know of this: the registration stands, the epoch has not moved.
    raw.delete(queues[0], recursive=True)
    receipt = bus.publish("users", "after")
    assert set(receipt.pending) | set(receipt.acked) >= {subs[1].id, subs[2].id}
    assert [len(raw.get_children(queue)) for queue in queues[1:]] == [2, 2]


def test_nobody_gets_half_a_fan_out(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused for one, it is stored for none, and sent again for those who are there: one copy each."""
    keep_queues_missing(monkeypatch)
    check_nobody_gets_half_a_fan_out(bus, connect, raw, tree)


def test_without_the_transaction_some_would_be_left_out(
    bus: Bus, connect: Connect, raw: KazooClient, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking the mechanism on purpose: with its operations sent one by one, it counts as stored and is not."""
    keep_queues_missing(monkeypatch)
    together = Session.multi_async

    def one_by_one(self: Session, operations: Sequence[Operation]) -> Future[list[Any]]:
        answer: Future[list[Any]] = Future()
        results: list[Any] = []
        for index, operation in enumerate(operations):
            try:
                results += together(self, [operation]).result(10)
            except TransactionFailed as error:
                answer.set_exception(TransactionFailed(index, error.cause, operation))
                return answer
        answer.set_result(results)
        return answer

    monkeypatch.setattr(Session, "multi_async", one_by_one)
    with pytest.raises(AssertionError):
        check_nobody_gets_half_a_fan_out(bus, connect, raw, tree)


def keep_queues_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their owners would make them again, and the check would not know what it sees."""
    monkeypatch.setattr("zkms.subscribe.live_registration.LiveRegistration.repair", lambda _self, _subscription: None)
