"""Each mechanism of durable subscriptions and groups taken away, and what breaks without it.

Every one of them has two tests: with it the guarantee holds, without it the same steps break it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

import msgspec
import pytest

import zkms
from tests.support.buses import Connect, Eventually
from tests.support.keys import keys_for
from zkms.consume.claim import Claim
from zkms.consume.dispatcher import Dispatcher
from zkms.consume.ledger_commits import Ownership
from zkms.publish.shipment import OutgoingFrame
from zkms.tree.records import Ledger, decode
from zkms.zookeeper.session import Session

pytestmark = pytest.mark.on_one_server

TOPIC = "jobs"


# -- a takeover is a write ---------------------------------------------------------------------------------------------


def ack_after_a_takeover(connect: Connect) -> None:
    """The ack of a reader from which the subscription was taken."""
    former = connect().subscribe(TOPIC, name="audit")
    bus = connect()
    bus.publish(TOPIC, "work")
    message = former.get(timeout=30)
    assert message is not None
    successor = connect().subscribe(TOPIC, name="audit", takeover=True)
    assert successor.get(timeout=30) is not None
    message.ack()


def test_a_reader_that_was_replaced_cannot_ack(connect: Connect) -> None:
    """Whoever takes a partition over writes its ledger: the version that the former owner knows is gone."""
    with pytest.raises(zkms.LostOwnership):
        ack_after_a_takeover(connect)


def test_without_a_write_at_takeover_it_acks_what_another_reads(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation: to look at the ledger and go ahead."""

    def look(session: Session, path: str, me: str, may_take: Callable[[str], bool], deadline: float) -> Claim:
        data, stat = session.get(path)
        ledger = decode(data, Ledger)
        mine = msgspec.structs.replace(ledger, owner=me, claim=secrets.token_hex(4))
        return Claim(mine, stat.version, True, stat.mzxid)

    monkeypatch.setattr("zkms.consume.group_member.claim", look)
    ack_after_a_takeover(connect)


# -- the position inside a frame is stored -----------------------------------------------------------------------------


def read_in_two_halves(connect: Connect) -> list[object]:
    """Four messages in one frame, two acked by one reader; what the next one gets."""
    connect().subscribe(TOPIC, name="audit").close()
    connect().publish_many(TOPIC, range(4))
    with connect() as bus:
        subscription = bus.subscribe(TOPIC, name="audit")
        subscription.ack(subscription.fetch(2, timeout=30))
    messages = connect().subscribe(TOPIC, name="audit").fetch(4, timeout=30)
    return [message.data for message in messages]


def test_a_frame_that_is_half_done_goes_on_in_its_middle(connect: Connect) -> None:
    """Exactly once per ack, whatever travelled together."""
    assert read_in_two_halves(connect) == [2, 3]


def test_without_the_ledgers_parts_acked_messages_come_again(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: a reader that does not look at what was done with of a frame."""
    begin = Ownership.__init__

    def forgetful(
        ownership: Ownership, session: Session, path: str, claimed: Claim, lost: Callable[[str], None]
    ) -> None:
        begin(ownership, session, path, claimed, lost)
        ownership.parts = {}

    monkeypatch.setattr(Ownership, "__init__", forgetful)
    assert read_in_two_halves(connect) == [0, 1, 2, 3]


# -- a message's id is created with it ---------------------------------------------------------------------------------


def publish_twice(connect: Connect) -> list[object]:
    """The same message by two processes, each of which believes that it has to; what a subscriber gets."""
    subscription = connect().subscribe(TOPIC, name="audit")
    for _ in range(2):
        connect().publish_many(TOPIC, ["pay"], id=lambda _data: "invoice-7")
    connect().publish(TOPIC, "last")
    got: list[object] = []
    while "last" not in got:
        got += [message.data for message in subscription.fetch(10, timeout=30)]
    return got


def test_a_message_of_the_same_id_is_stored_once(connect: Connect) -> None:
    """The second one's transaction finds the first one's id, and goes without the message."""
    assert publish_twice(connect) == ["pay", "last"]


def test_without_the_ids_in_the_transaction_it_is_stored_twice(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation: nobody remembers."""
    monkeypatch.setattr(OutgoingFrame, "ids", property(lambda _outgoing: {}))
    assert publish_twice(connect) == ["pay", "pay", "last"]


# -- a partition is released when nothing of it is in flight -----------------------------------------------------------


def join_while_another_works(
    connect: Connect, eventually: Eventually, *, early: bool
) -> tuple[list[object], list[object]]:
    """A member joins while the other one has a message in hand of the partition that moves; what each has got."""
    key = keys_for(2)[1]  # the later partition is the one that moves
    busy, finish = threading.Event(), threading.Event()
    got: tuple[list[object], list[object]] = ([], [])

    def work(message: zkms.Message) -> None:
        got[0].append(message.data)
        busy.set()
        finish.wait(60)

    first = connect().subscribe(TOPIC, work, group="workers", partitions=2)
    eventually(lambda: first.partitions == [0, 1])
    bus = connect()
    bus.publish(TOPIC, "in hand", key=key)
    assert busy.wait(30)
    second = connect().subscribe(TOPIC, lambda message: got[1].append(message.data), group="workers")
    eventually(lambda: first.partitions == [0])
    bus.publish(TOPIC, "next", key=key)
    if early:
        eventually(lambda: "in hand" in got[1])
    else:
        time.sleep(1.0)  # time for what must not happen
    finish.set()
    eventually(lambda: second.partitions == [1] and "next" in got[1])
    return got


def test_a_partition_moves_when_the_work_in_hand_is_done(connect: Connect, eventually: Eventually) -> None:
    """Two members never have messages of one key at the same time, unless one of them is given up for dead."""
    assert join_while_another_works(connect, eventually, early=False) == (["in hand"], ["next"])


def test_without_waiting_for_it_two_members_work_on_one_message(
    connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutation: to give back at once what the plan takes."""
    stop = Dispatcher.stop
    monkeypatch.setattr(Dispatcher, "stop", lambda dispatcher: stop(dispatcher) or True)
    assert join_while_another_works(connect, eventually, early=True) == (["in hand"], ["in hand", "next"])
