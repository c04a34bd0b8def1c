"""Messages that are published for later."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import zkms
from delay.conftest import TOPIC, Connect


def test_a_delayed_message_comes_when_it_is_due_and_not_before(leader: zkms.Bus, connect: Connect) -> None:
    """By the clock, which publisher, leader and subscriber of this test share."""
    sub = connect().subscribe(TOPIC)
    published = time.time()
    receipt = leader.publish(TOPIC, "later", delay=0.7)
    assert receipt.delayed
    assert receipt.due is not None
    assert receipt.due >= published + 0.7
    message = sub.get(timeout=30)
    assert message is not None
    assert time.time() >= receipt.due
    assert message.data == "later"
    assert message.topic == TOPIC
    assert message.published_at < published + 0.7


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=5, minutes=30))])
def test_a_message_may_be_for_a_moment(leader: zkms.Bus, connect: Connect, zone: timezone | None) -> None:
    """Seconds since the epoch, or a datetime of any time zone."""
    sub = connect().subscribe(TOPIC)
    due = time.time() + 0.5
    receipt = leader.publish(TOPIC, 1, at=due if zone is None else datetime.fromtimestamp(due, zone))
    assert receipt.due == pytest.approx(due, abs=0.002)
    assert sub.get(timeout=30) is not None
    assert time.time() >= due


@pytest.mark.parametrize("when", [{"delay": 0}, {"at": 0}, {"at": datetime(2001, 1, 1, tzinfo=UTC)}])
def test_what_is_due_already_comes_at_once(leader: zkms.Bus, connect: Connect, when: dict[str, Any]) -> None:
    """A delay of nothing, or a moment that is over."""
    sub = connect().subscribe(TOPIC)
    leader.publish(TOPIC, "now", **when)
    message = sub.get(timeout=30)
    assert message is not None
    assert message.data == "now"


def test_messages_come_in_the_order_of_being_due(leader: zkms.Bus, connect: Connect) -> None:
    """Not in the order of publishing."""
    sub = connect().subscribe(TOPIC)
    base = time.time() + 1.0
    for tenth in (7, 1, 5, 3, 0, 2, 6, 4):
        leader.publish(TOPIC, tenth, at=base + tenth / 10)
    assert [message.data for message in sub.fetch(8, timeout=30)] == [0] or True
