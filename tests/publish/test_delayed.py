"""Messages that are published for later."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from tests.support.delayed import OPTIONS, TOPIC, Listener, Sleeper
from zkms.server.server import Server
from zkms.testing import Proxy
from zkms.tree.paths import Tree
from zkms.tree.records import DeadLetter, decode
from zkms.zookeeper.operations import Create, SetData

pytestmark = pytest.mark.on_one_server


@pytest.fixture
def connect_options() -> dict[str, Any]:
    """Sessions that expire soon."""
    return OPTIONS


def data_of(sub: zkms.Subscription | zkms.Consumer, count: int) -> list[Any]:
    """What so many messages hold, in the order of their coming; they are acked."""
    got: list[Any] = []
    deadline = time.monotonic() + 60
    while len(got) < count and time.monotonic() < deadline:
        message = sub.get(timeout=1.0)
        if message is not None:
            got.append(message.data)
            if isinstance(sub, zkms.Consumer):
                message.ack()
    return got


def dead_letters(bus: zkms.Bus, topic: str = TOPIC) -> list[DeadLetter]:
    """Those that nobody subscribed to."""
    shelf = bus.parts.tree.dead_queue("nobody", topic)
    if bus.parts.session.exists(shelf) is None:
        return []
    return [
        decode(bus.parts.session.get(f"{shelf}/{name}")[0], DeadLetter) for name in bus.parts.session.children(shelf)[0]
    ]


# -- when ------------------------------------------------------------------------------------------------------------


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
    assert (message.data, message.topic, message.id) == ("later", TOPIC, receipt.id)
    assert message.published_at >= published


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=5, minutes=30))], ids=["number", "UTC", "+5:30"])
def test_a_message_may_be_for_a_moment(leader: zkms.Bus, connect: Connect, zone: timezone | None) -> None:
    """Seconds since the epoch, or a datetime of any time zone."""
    sub = connect().subscribe(TOPIC)
    due = time.time() + 0.5
    receipt = leader.publish(TOPIC, 1, at=due if zone is None else datetime.fromtimestamp(due, zone))
    assert receipt.due == pytest.approx(due, abs=0.002)
    assert sub.get(timeout=30) is not None
    assert time.time() >= due - 0.001


@pytest.mark.parametrize("when", [{"delay": 0}, {"at": 0}, {"at": datetime(2001, 1, 1, tzinfo=UTC)}], ids=str)
def test_what_is_due_already_comes_at_once(leader: zkms.Bus, connect: Connect, when: dict[str, Any]) -> None:
    """A delay of nothing, or a moment that is over."""
    sub = connect().subscribe(TOPIC)
    leader.publish(TOPIC, "now", **when)
    assert data_of(sub, 1) == ["now"]


def test_messages_come_in_the_order_of_being_due(sleeper: Sleeper, connect: Connect) -> None:
    """Not in the order of publishing; those of one moment in that order."""
    sub = connect().subscribe(TOPIC)
    bus = connect(cleaner=True)
    base = time.time()
    for tenth in (7, 1, 5, 3, 0, 2, 6, 4):
        bus.publish(TOPIC, (tenth, "first"), at=base + tenth / 10)
        bus.publish(TOPIC, (tenth, "second"), at=base + tenth / 10)
    sleeper.give_way()
    expected = [[tenth, which] for tenth in range(8) for which in ("first", "second")]
    assert [list(data) for data in data_of(sub, 16)] == expected


def test_many_messages_may_be_delayed_at_once(leader: zkms.Bus, connect: Connect) -> None:
    """They travel in frames, and come in order, none before its time."""
    listener = Listener(connect())
    receipts = leader.publish_many(TOPIC, ({"n": n, "text": "x" * 50} for n in range(1000)), delay=1.0)
    assert len(receipts) == 1000
    receipts[-1].wait(60)
    assert len(receipts[-1].acked) == 1
    assert [data["n"] for data in listener.got] == list(range(1000))
    assert receipts[0].due is not None
    assert min(listener.at) >= receipts[0].due


# -- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"delay": -1}, "negative"),
        ({"delay": 1, "at": 2_000_000_000}, "not both"),
        ({"at": datetime(2030, 1, 1)}, "no time zone"),
        ({"at": "tomorrow"}, "seconds since the epoch"),
        ({"at": float("nan")}, "seconds since the epoch"),
        ({"delay": "1"}, "number of seconds"),
        ({"delay": 400_000_000}, "ten years"),
        ({"delay": 5, "ttl": 5}, "over before"),
        ({"at": datetime(2033, 1, 1, tzinfo=UTC), "ttl": 60}, "over before"),
        ({"delay": 1, "to_self": False}, "to_self"),
    ],
    ids=str,
)
def test_each_wrong_delay_has_an_error_of_its_own(connect: Connect, terms: dict[str, Any], says: str) -> None:
    """And nothing is stored."""
    bus = connect(cleaner=True)
    with pytest.raises(zkms.InvalidArgument, match=says):
        bus.publish(TOPIC, 1, **terms)
    with pytest.raises(zkms.InvalidArgument, match=says):
        bus.publish_many(TOPIC, [1, 2], **terms)
    assert bus.delayed() == []


def test_a_delay_is_refused_where_nobody_would_move_it(connect: Connect) -> None:
    """Nobody stands for the cleaners' election; as soon as somebody does, it is accepted."""
    bus = connect()
    with pytest.raises(zkms.NoCleaner, match="zkms-cleaner"):
        bus.publish(TOPIC, 1, delay=10)
    assert bus.delayed() == []
    other = connect(cleaner=True)
    other.publish(TOPIC, 1, delay=1000)  # its own candidacy may have to come yet
    deadline = time.monotonic() + 30
    while not bus.parts.session.children(bus.parts.tree.cleaner)[0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    bus.publish(TOPIC, 2, delay=1000)
    assert [(info.topic, info.messages) for info in bus.delayed()] == [(TOPIC, 2)]


def test_a_message_that_is_too_large_to_wait_is_refused(leader: zkms.Bus) -> None:
    """It has to fit into one transaction when it is moved, or is a dead letter."""
    with pytest.raises(zkms.MessageTooLarge):
        leader.publish(TOPIC, b"x" * 500_000, delay=1)
    assert leader.delayed() == []


def test_an_id_is_stored_once_also_if_it_is_delayed(leader: zkms.Bus, connect: Connect) -> None:
    """A repeat is a duplicate from the moment that the first was stored, not from when it is due."""
    sub = connect().subscribe(TOPIC)
    leader.publish(TOPIC, "first", delay=1, id="a")
    with pytest.raises(zkms.DuplicateMessage):
        leader.publish(TOPIC, "second", delay=1, id="a")
    with pytest.raises(zkms.DuplicateMessage):
        leader.publish(TOPIC, "third", id="a")
    receipts = leader.publish_many(TOPIC, ["a", "b", "b", "c"], delay=1, id=lambda data: data)
    assert [receipt.duplicate_of is not None for receipt in receipts] == [True, False, True, False]
    assert sorted(data_of(sub, 3)) == ["b", "c", "first"]
    assert sub.get(timeout=0.5) is None


# -- who gets it -----------------------------------------------------------------------------------------------------


def test_who_gets_it_is_decided_when_it_is_due(sleeper: Sleeper, connect: Connect) -> None:
    """Who has left by then does not get it, and who has come since it was published does."""
    early = connect().subscribe(TOPIC)
    receipt = connect(cleaner=True).publish(TOPIC, "later", delay=0.1)
    early.unsubscribe()
    late = connect().subscribe(TOPIC)
    sleeper.give_way()
    assert data_of(late, 1) == ["later"]
    assert receipt.wait(30).acked == (late.id,)


def test_every_kind_of_subscription_gets_its_part(leader: zkms.Bus, connect: Connect) -> None:
    """Live, durable, a group by key, a pattern, and one that wants certain headers only."""
    bus = connect()
    live = bus.subscribe("jobs.mail")
    durable = bus.subscribe("jobs.mail", name="audit")
    pattern = bus.subscribe("jobs.*", name="all")
    picky = bus.subscribe("jobs.mail", name="europe", where={"region": "eu"})
    bus.create_group("jobs.mail", "workers", partitions=4)
    keys = [f"k{n}" for n in range(20)]
    leader.publish_many("jobs.mail", keys, key=lambda data: data, delay=0.5)
    leader.publish("jobs.mail", "eu", key="x", headers={"region": "eu"}, priority=3, delay=0.5)
    member = connect().subscribe("jobs.mail", group="workers", partitions=4)
    for sub in (live, durable, pattern, member):
        assert sorted(data_of(sub, 21)) == sorted([*keys, "eu"])
    message = picky.get(timeout=30)
    assert message is not None
    assert (message.data, message.topic, message.headers) == ("eu", "jobs.mail", {"region": "eu"})
    message.ack()
    assert picky.get(timeout=0.3) is None


def test_a_topic_that_only_a_pattern_stands_for_has_subscribers(leader: zkms.Bus, connect: Connect) -> None:
    """Nobody ever subscribed to the topic itself."""
    sub = connect().subscribe("jobs.>", name="all")
    leader.publish("jobs.mail.out", 1, delay=0.3)
    message = sub.get(timeout=30)
    assert message is not None
    assert message.topic == "jobs.mail.out"


@pytest.mark.parametrize("known", [False, True], ids=["no such topic", "all have left"])
def test_what_nobody_subscribes_to_when_it_is_due_is_a_dead_letter(
    leader: zkms.Bus, connect: Connect, known: bool
) -> None:
    """With the reason; unless its publisher said that it may be dropped."""
    if known:
        connect().subscribe(TOPIC).unsubscribe()
    dropped = leader.publish(TOPIC, "dropped", delay=0.2, if_nobody="drop")
    receipt = leader.publish_many(TOPIC, ["one", "two"], delay=0.3)[0]
    assert not receipt.wait(30).delayed
    dropped.wait(30)
    assert (receipt.acked, receipt.pending) == ((), ())
    assert "nobody" in receipt.gone
    letters = dead_letters(leader)
    assert len(letters) == 2
    assert {letter.reason for letter in letters} == {"nobody subscribed when it was due"}


def test_what_has_expired_when_it_could_be_moved_is_not_delivered(
    sleeper: Sleeper, connect: Connect, eventually: Eventually
) -> None:
    """Nobody moved it when it was due; what was due with it comes, late."""
    sub = connect().subscribe(TOPIC)
    bus = connect(cleaner=True)
    gone = bus.publish(TOPIC, "short-lived", delay=0.2, ttl=0.5)
    late = bus.publish(TOPIC, "late", delay=0.2)
    eventually(lambda: time.time() > (late.due or 0) + 0.5)
    sleeper.give_way()
    assert data_of(sub, 1) == ["late"]
    assert sub.get(timeout=0.3) is None
    assert gone.wait(30).gone == {sub.id: "it had expired"}


def test_a_large_message_is_stored_once_for_all(leader: zkms.Bus, connect: Connect) -> None:
    """As a published one is; its receipt follows it there."""
    subs = [connect().subscribe(TOPIC, name=f"reader-{n}") for n in range(3)]
    receipt = leader.publish(TOPIC, "x" * 100_000, delay=0.3)
    first = subs[0].get(timeout=30)
    assert first is not None
    assert receipt.wait(0.5).pending == tuple(sub.id for sub in subs)
    assert leader.parts.session.children(leader.parts.tree.bodies_of("~due"))[0] != []
    first.ack()
    for sub in subs[1:]:
        assert data_of(sub, 1) == ["x" * 100_000]
    assert sorted(receipt.wait(30).acked) == [sub.id for sub in subs]


# -- what is known of it ---------------------------------------------------------------------------------------------


def test_a_receipt_follows_its_message_into_the_queues(sleeper: Sleeper, connect: Connect) -> None:
    """Pending while it waits, pending at each subscription when it was moved, then acked."""
    durable = connect().subscribe(TOPIC, name="audit")
    receipt = connect(cleaner=True).publish(TOPIC, 1, delay=0.1)
    assert receipt.wait(0).delayed
    sleeper.give_way()
    message = durable.get(timeout=30)
    assert message is not None
    receipt.wait(0)
    assert (receipt.delayed, receipt.pending, receipt.acked) == (False, ("audit",), ())
    message.ack()
    assert receipt.wait(30).acked == ("audit",)


def test_a_receipt_can_be_asked_long_after_it_was_due(leader: zkms.Bus, connect: Connect) -> None:
    """Who got it is remembered for a while, also if it was acked at once."""
    sub = connect().subscribe(TOPIC)
    receipt = leader.publish(TOPIC, 1, delay=0.2)
    assert data_of(sub, 1) == [1]
    assert receipt.wait(30).acked == (sub.id,)


def test_what_waits_is_counted_by_topic(leader: zkms.Bus) -> None:
    """Messages, not frames, and when the first of them is due."""
    assert leader.delayed() == []
    soon = leader.publish("b", 1, delay=500)
    leader.publish_many("a", range(600), delay=1000)
    leader.publish("b", 2, delay=2000)
    counted = [(info.topic, info.messages) for info in leader.delayed()]
    assert counted == [("b", 2), ("a", 600)]
    assert leader.delayed()[0].next_due == soon.due


def test_what_is_far_away_costs_no_memory(leader: zkms.Bus, eventually: Eventually) -> None:
    """The leader holds the near buckets only."""
    for n in range(100):
        leader.publish(TOPIC, n, delay=200 + n)
    assert leader.parts.cleaner is not None
    delays = leader.parts.cleaner._delays
    leader.publish(TOPIC, "near", delay=20)
    eventually(lambda: len(delays) == 1)
    assert leader.delayed()[0].messages == 101


def test_empty_buckets_are_removed(
    connect: Connect, tree: Tree, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """When nobody needs to know any more who got what was in them; a bucket that is still to come stays."""
    monkeypatch.setattr("zkms_cleaner.delays.KEEP", -20.0)
    bus = connect(cleaner=True)
    sub = connect().subscribe(TOPIC)
    bus.publish(TOPIC, "soon", delay=0.2)
    bus.publish(TOPIC, "later", delay=1000)
    assert data_of(sub, 1) == ["soon"]
    eventually(lambda: len(bus.parts.session.children(tree.delayed)[0]) == 1, 60)
    bus.publish(TOPIC, "again", delay=0.2)  # into a bucket that may have been removed
    assert data_of(sub, 1) == ["again"]


def test_what_is_not_ours_in_a_bucket_is_set_aside(
    sleeper: Sleeper, connect: Connect, tree: Tree, eventually: Eventually
) -> None:
    """Garbage, and a frame that was damaged, stop nobody."""
    sub = connect().subscribe(TOPIC)
    leader = connect(cleaner=True)
    receipt = leader.publish(TOPIC, "damaged", delay=0.1)
    assert receipt._delayed is not None
    path = receipt._delayed.path(tree)
    bucket = path.rpartition("/")[0]
    leader.parts.session.multi([SetData(path, b"garbage"), Create(f"{bucket}/garbage", b"?")])
    leader.publish(TOPIC, "sound", delay=0.1)
    sleeper.give_way()
    assert data_of(sub, 1) == ["sound"]
    shelf = tree.dead_queue("delayed", bucket.rpartition("/")[2])
    eventually(lambda: leader.parts.session.exists(shelf) and len(leader.parts.session.children(shelf)[0]) == 2)


def test_a_transaction_may_publish_for_later(leader: zkms.Bus, connect: Connect) -> None:
    """Stored with the ack of what it came from, or not at all."""
    bus = connect(cleaner=True)
    orders, reminders = bus.subscribe("orders", name="a"), connect().subscribe(TOPIC)
    leader.publish("orders", 1)
    message = orders.get(timeout=30)
    assert message is not None
    with bus.transaction() as tx:
        tx.ack(message)
        tx.publish(TOPIC, "have you paid?", delay=0.5)
    assert tx.receipts[0].due is not None
    assert data_of(reminders, 1) == ["have you paid?"]
    assert time.time() >= tx.receipts[0].due


def test_asyncio_publishes_for_later_too(zookeeper: Server, zookeeper_root: str) -> None:
    """One message, many, and the receipt that is awaited."""

    async def main() -> None:
        async with zkms.aio.connect(zookeeper.hosts, zookeeper_root) as bus:
            got: list[Any] = []
            await bus.subscribe(TOPIC, lambda message: got.append(message.data))
            one = await bus.publish(TOPIC, "one", delay=0.5)
            many = await bus.publish_many(TOPIC, ["two", "three"], at=time.time() + 0.6)
            assert one.delayed
            with pytest.raises(zkms.InvalidArgument, match="negative"):
                await bus.publish(TOPIC, "never", delay=-1)
            await one.wait(30)
            await many[1].wait(30)
            assert one.due is not None
            assert not one.delayed
            assert (len(one.acked), len(many[1].acked)) == (1, 1)
            assert got == ["one", "two", "three"]
            assert await bus.delayed() == []
            async with bus.transaction() as tx:
                tx.publish(TOPIC, "four", delay=0.2)
            await tx.receipts[0].wait(30)
            assert got[3:] == ["four"]

    asyncio.run(main())


def test_a_trail_tells_of_the_delay_and_of_the_move(connect: Connect, tmp_path: Path) -> None:
    """Who was given it is said when it was moved, by whoever moved it."""
    from tests.support.trails import read

    trail = tmp_path / "trail"
    bus = connect(cleaner=True, trail=trail)
    sub = connect().subscribe(TOPIC)
    receipt = bus.publish(TOPIC, 1, key="k", delay=0.3)
    bus.publish("nobody's", 2, delay=0.4).wait(30)
    assert data_of(sub, 1) == [1]
    receipt.wait(30)
    bus.close()
    events = {(event.event, event.topic): event for event in read(trail)}
    delayed, due = events["delayed", TOPIC], events["due", TOPIC]
    assert (delayed.seq, delayed.n, delayed.producer) == (receipt.seq, 1, receipt.producer)
    assert delayed.due is not None
    assert due.due is not None
    assert receipt.due == due.due >= delayed.due
    assert (due.seq, due.n, due.subs, due.producer) == (receipt.seq, 1, [sub.id], receipt.producer)
    assert due.t >= due.due
    assert due.zxid is not None
    assert delayed.zxid is not None
    assert due.zxid > delayed.zxid
    assert events["dead", "nobody's"].reason == "nobody subscribed when it was due"


def test_a_server_without_persistent_watches_is_looked_at_more_often(connect: Connect, proxy: Proxy) -> None:
    """ZooKeeper before 3.6: what is published for later comes all the same."""
    proxy.age("add_watch")
    leader = connect(through=proxy, cleaner=True)
    sub = connect().subscribe(TOPIC)
    leader.publish(TOPIC, 1, delay=0.5)
    assert data_of(sub, 1) == [1]
