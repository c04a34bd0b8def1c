"""Groups: members share the messages, those of one key are handled in order, what fails is tried again."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import zkms
from tests.support.buses import Connect, Eventually
from zkms import Bus, GroupMismatch, InvalidArgument, LostOwnership, Message
from zkms.consume.assignment import MemberLoad, assign, slow_ones
from zkms.publish.audience import partition_of
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.tree.records import Ledger, Part, Registration, Try, encode
from zkms.zookeeper.operations import Delete, SetData

pytestmark = pytest.mark.on_asyncio_too


def dead_letters(bus: Bus, group: str, topic: str) -> int:
    """How many there are."""
    stat = bus.parts.session.exists(bus.parts.tree.dead_queue(group, topic))
    return 0 if stat is None else stat.numChildren


def test_messages_wait_for_a_group_that_has_no_members_yet(bus: Bus, connect: Connect) -> None:
    """Publish and subscribe in any order."""
    assert bus.create_group("jobs", "workers", partitions=4)
    assert not bus.create_group("jobs", "workers", partitions=4)
    bus.publish_many("jobs", range(20), key=str)
    sub = connect().subscribe("jobs", group="workers")
    got: list[Message] = []
    while len(got) < 20:
        got += sub.fetch(20, timeout=10)
    assert sorted(message.data for message in got) == list(range(20))


@pytest.mark.of_threads
def test_who_founds_a_group_a_moment_too_late_joins_it(
    bus: Bus, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen no registration, and finds the rest there: of a living group, not of one that is gone."""
    first = bus.subscribe("jobs", group="workers", partitions=2)
    late = connect()
    looked: list[object] = []

    def look(topic: str, name: str) -> Registration | None:
        looked.append(None)
        return None if len(looked) == 1 else DurableRegistration.find(late.parts.durable_registration, topic, name)

    monkeypatch.setattr(late.parts.durable_registration, "find", look)
    second = late.subscribe("jobs", group="workers", partitions=2)
    bus.publish_many("jobs", range(8), key=str)
    got: set[int] = set()
    deadline = time.monotonic() + 60
    while len(got) < 8 and time.monotonic() < deadline:
        for message in [*first.fetch(8, timeout=0.2), *second.fetch(8, timeout=0.2)]:
            message.ack()
            got.add(message.data)
    assert got == set(range(8))
    assert len(looked) > 1


@pytest.mark.of_threads
def test_a_group_is_founded_on_what_an_older_one_has_left(bus: Bus) -> None:
    """One that was interrupted when it was given up, and had more partitions."""
    bus.create_group("jobs", "workers", partitions=4)
    bus.parts.session.multi([Delete(bus.parts.tree.registration("jobs", "workers"))])
    sub = bus.subscribe("jobs", group="workers", partitions=2)
    bus.publish("jobs", 1, key="a")
    message = sub.get(timeout=30)
    assert message is not None
    message.ack()
    assert sorted(bus.parts.session.children(bus.parts.tree.ledgers("workers", "jobs"))[0]) == ["0", "1"]
    sub.unsubscribe()
    assert bus.parts.session.exists(bus.parts.tree.group("workers", "jobs")) is None
    assert bus.parts.session.exists(bus.parts.tree.queue("workers#0", "jobs")) is None


def test_each_message_goes_to_one_member(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """And all of a key to the same one, in order."""
    seen: dict[str, list[tuple[str, int]]] = {"a": [], "b": []}
    subs = [
        connect().subscribe("jobs", lambda m, who=who: seen[who].append((m.key, m.data)), group="workers", partitions=4)
        for who in seen
    ]
    eventually(lambda: [len(sub.partitions) for sub in subs] == [2, 2])
    bus.publish_many("jobs", range(200), key=lambda number: str(number % 10))
    eventually(lambda: sum(map(len, seen.values())) == 200)
    assert seen["a"]
    assert seen["b"]
    keys = [{key for key, _ in part} for part in seen.values()]
    assert not keys[0] & keys[1]
    for part in seen.values():
        for key in {key for key, _ in part}:
            numbers = [number for own, number in part if own == key]
            assert numbers == sorted(numbers)


def test_the_partition_of_a_key_is_the_same_for_ever() -> None:
    """crc32 of the key in UTF-8, modulo the partitions: any program can compute it."""
    assert [partition_of(key, 8) for key in ("42", "alice", "ß")] == [0, 7, 7]


def test_messages_without_a_key_spread_evenly(bus: Bus) -> None:
    """The partitions take turns."""
    bus.create_group("jobs", "workers", partitions=4)
    for number in range(40):
        bus.publish("jobs", number)
    assert [queue.entries for queue in bus.queues()] == [10, 10, 10, 10]
    bus.publish_many("jobs", range(4 * 64))
    assert [queue.entries for queue in bus.queues()] == [11, 11, 11, 11]


def test_a_member_that_leaves_gives_its_partitions_to_the_others(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """What it did not ack is theirs."""
    first = connect()
    sub = first.subscribe("jobs", group="workers", partitions=2)
    eventually(lambda: sub.partitions == [0, 1])
    bus.publish_many("jobs", range(10), key=str)
    got: list[Message] = []
    while len(got) < 10:
        got += sub.fetch(10, timeout=10)
    sub.ack(got[:4])
    acked = {message.data for message in got[:4]}
    first.close()
    other = connect().subscribe("jobs", group="workers")
    rest: list[Message] = []
    while len(rest) < 6:
        rest += other.fetch(10, timeout=10)
    assert {message.data for message in rest} == set(range(10)) - acked


def test_a_member_that_joins_late_gets_its_share(connect: Connect, eventually: Eventually) -> None:
    """And as few partitions as possible change hands."""
    first = connect().subscribe("jobs", group="workers", partitions=6)
    eventually(lambda: len(first.partitions) == 6)
    second = connect().subscribe("jobs", group="workers")
    eventually(lambda: len(first.partitions) == len(second.partitions) == 3)
    third = connect().subscribe("jobs", group="workers")
    eventually(lambda: [len(sub.partitions) for sub in (first, second, third)] == [2, 2, 2])
    assert sorted(first.partitions + second.partitions + third.partitions) == list(range(6))


def test_what_fails_is_tried_again_and_ends_as_a_dead_letter(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """While the messages of other keys flow on."""
    seen: list[tuple[str, int]] = []

    def handle(message: Message) -> None:
        seen.append((message.data, message.attempts))
        if message.data == "poison":
            raise ValueError("cannot be done")

    connect().subscribe("jobs", handle, group="workers", partitions=1, max_attempts=3, backoff=0.3)
    jobs = ["poison", "behind", *range(5)]
    bus.publish_many("jobs", jobs, key=lambda job: "bad" if isinstance(job, str) else "good")
    eventually(lambda: dead_letters(bus, "workers", "jobs") == 1)
    eventually(lambda: len(seen) == 9)
    assert [attempt for data, attempt in seen if data == "poison"] == [1, 2, 3]
    assert [data for data, _ in seen if isinstance(data, int)] == [0, 1, 2, 3, 4]
    assert seen.index((0, 1)) < seen.index(("poison", 3))
    assert seen.index(("behind", 1)) > seen.index(("poison", 3))


def test_without_scopes_a_key_would_be_handled_out_of_order(
    bus: Bus, connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaking it on purpose: a message overtakes the one of its key that is to be tried again."""
    monkeypatch.setattr("zkms.consume.dispatcher.Dispatcher._scope", lambda _self, _message: None)
    done: list[int] = []

    def handle(message: Message) -> None:
        if message.data == 0 and message.attempts == 1:
            raise ValueError("later")
        done.append(message.data)

    connect().subscribe("jobs", handle, group="workers", partitions=1, backoff=0.3)
    bus.publish_many("jobs", range(3), key=lambda _number: "same")
    eventually(lambda: len(done) == 3)
    assert done != [0, 1, 2]


def test_what_is_not_done_in_time_is_given_out_again(bus: Bus, connect: Connect) -> None:
    """The late one cannot ack any more."""
    sub = connect().subscribe("jobs", group="workers", partitions=1, ttr=0.3, backoff=0.0)
    bus.publish("jobs", "slow")
    first = sub.get(timeout=10)
    second = sub.get(timeout=10)
    assert first is not None
    assert second is not None
    assert (second.data, second.attempts) == ("slow", 2)
    with pytest.raises(LostOwnership, match="delivered again"):
        first.ack()
    second.ack()


def test_touch_prolongs_the_time(bus: Bus, connect: Connect) -> None:
    """As long as it is touched, nobody else gets it."""
    sub = connect().subscribe("jobs", group="workers", partitions=1, ttr=1.0, backoff=0.0)
    bus.publish("jobs", "long")
    message = sub.get(timeout=10)
    assert message is not None
    for _ in range(8):
        time.sleep(0.25)
        message.touch()
    assert sub.get(timeout=0) is None
    message.ack()


def test_a_stuck_handler_loses_its_partitions_to_others(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """It stays a member, and gets partitions again when it goes on."""
    go = threading.Event()
    seen: list[int] = []
    stuck = connect().subscribe("jobs", lambda _m: go.wait(60), group="workers", partitions=2, ttr=0.5, backoff=0.0)
    eventually(lambda: len(stuck.partitions) == 2)
    bus.publish_many("jobs", range(4), key=str)
    other = connect().subscribe("jobs", lambda m: seen.append(m.data), group="workers", backoff=0.0)
    eventually(lambda: sorted(set(seen)) == [0, 1, 2, 3])
    go.set()
    eventually(lambda: len(stuck.partitions) == len(other.partitions) == 1)


def test_nak_says_when_and_reject_says_never(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """With a delay of one's own; a rejected message is a dead letter at once."""
    sub = connect().subscribe("jobs", group="workers", partitions=1)
    bus.publish("jobs", "again")
    message = sub.get(timeout=10)
    assert message is not None
    message.nak(delay=0.2)
    began = time.monotonic()
    message = sub.get(timeout=10)
    assert message is not None
    assert time.monotonic() - began > 0.1
    message.reject("no such user")
    eventually(lambda: dead_letters(bus, "workers", "jobs") == 1)
    with pytest.raises(InvalidArgument):
        message.nak(delay=-1)


def test_a_group_declared_otherwise_is_refused(bus: Bus) -> None:
    """Its partitions cannot change while messages wait in them."""
    bus.create_group("jobs", "workers", partitions=4)
    with pytest.raises(GroupMismatch, match="4 partitions instead of 3"):
        bus.create_group("jobs", "workers", partitions=3)
    with pytest.raises(InvalidArgument, match="partitions must be a whole number"):
        bus.create_group("jobs", "others", partitions=0)


def test_the_last_member_to_unsubscribe_takes_the_group_along(bus: Bus, connect: Connect) -> None:
    """Those before it only leave."""
    first, last = (connect().subscribe("jobs", group="workers", partitions=2) for _ in range(2))
    first.unsubscribe()
    assert [info.subscription for info in bus.subscriptions("jobs")] == ["workers"]
    last.unsubscribe()
    assert bus.subscriptions("jobs") == []
    assert bus.queues() == []


def test_a_plan_is_even_sticky_and_leaves_out_who_is_stuck() -> None:
    """As little as possible moves."""
    all_well = {"a": MemberLoad(), "b": MemberLoad(), "c": MemberLoad()}
    assert assign(4, {"a": MemberLoad()}, {}) == {0: "a", 1: "a", 2: "a", 3: "a"}
    plan = assign(6, all_well, dict.fromkeys(range(6), "a"))
    assert sorted(plan.values()) == ["a", "a", "b", "b", "c", "c"]
    assert assign(6, all_well, plan) == plan
    without = assign(6, {**all_well, "b": MemberLoad(stuck=True)}, plan)
    assert "b" not in without.values()
    assert all(without[number] == name for number, name in plan.items() if name != "b")
    assert assign(2, {"a": MemberLoad(stuck=True)}, {0: "a"}) == {}


def test_a_slow_member_counts_twice() -> None:
    """It gets half as much, and stays a member."""
    members = {"fast": MemberLoad(), "slow": MemberLoad(slow=True)}
    assert assign(4, members, {0: "fast", 1: "fast", 2: "slow", 3: "slow"}) == {
        0: "fast",
        1: "fast",
        2: "slow",
        3: "fast",
    }
    assert slow_ones({"a": 0.001, "b": 0.002, "c": 0.1}) == {"c"}
    assert slow_ones({"a": 0.0001, "b": 0.002}) == set(), "nobody would notice"
    assert slow_ones({"a": 5.0}) == set()


def test_partitions_move_away_from_a_member_that_is_repeatedly_slow(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """To those who are faster; it is not dropped, and does what it can."""
    slow = connect().subscribe("jobs", lambda _m: time.sleep(0.05), group="workers", partitions=4)
    fast = connect().subscribe("jobs", lambda _m: None, group="workers")
    eventually(lambda: len(slow.partitions) == len(fast.partitions) == 2)

    def work() -> bool:
        bus.publish_many("jobs", range(40), key=str)
        time.sleep(0.1)
        return (len(slow.partitions), len(fast.partitions)) == (1, 3)

    eventually(work)


def test_receipts_of_groups_say_when_the_work_is_done(bus: Bus, connect: Connect) -> None:
    """By partition."""
    connect().subscribe("jobs", lambda _message: None, group="workers", partitions=1)
    receipt = bus.publish("jobs", 1, key="k").wait(10)
    assert receipt.acked == ("workers#0",)


def test_a_queue_without_room_rejects(bus: Bus, connect: Connect) -> None:
    """Nothing is stored anywhere, neither for those who have room."""
    live = connect().subscribe("jobs")
    connect().subscribe("jobs", name="audit", limit=5)
    for number in range(5):
        bus.publish("jobs", number)
    with pytest.raises(zkms.QueueFull, match="'audit'"):
        bus.publish("jobs", 5)
    assert [live.get(timeout=10).data for _ in range(5)] == list(range(5))  # type: ignore[union-attr]
    assert live.get(timeout=0.1) is None


def test_a_queue_may_give_up_its_oldest(bus: Bus, connect: Connect) -> None:
    """The receipts of those say so."""
    sub = connect().subscribe("jobs", name="latest", limit=8, overflow="drop-oldest", prefetch=1)
    receipts = [bus.publish("jobs", number) for number in range(12)]
    assert "dropped" in receipts[1].wait(0).gone.get("latest", "")
    got: list[int] = []
    while not got or got[-1] != 11:
        message = sub.get(timeout=10)
        assert message is not None
        got.append(message.data)
        message.ack()
    assert len(got) < 12


def test_who_was_away_hears_of_what_was_dropped_meanwhile(bus: Bus, connect: Connect) -> None:
    """Once, however often there was no room; and the gap comes before what was published after the drop."""
    options: dict[str, Any] = {"name": "latest", "limit": 8, "overflow": "drop-oldest"}
    connect().subscribe("jobs", **options).close()
    for number in range(30):
        bus.publish("jobs", number)
    heard: list[zkms.Gap | int] = []
    sub = connect().subscribe("jobs", on_gap=heard.append, **options)
    while not heard or heard[-1] != 29:
        message = sub.get(timeout=10)
        assert message is not None
        heard.append(message.data)
        message.ack()
    (gap,) = [each for each in heard if isinstance(each, zkms.Gap)]
    assert "dropped" in gap.reason
    bus.publish("jobs", 30)
    message = sub.get(timeout=10)
    assert message is not None
    assert message.data == 30
    assert len([each for each in heard if isinstance(each, zkms.Gap)]) == 1


def test_a_durable_queue_may_take_a_gap(bus: Bus, connect: Connect, eventually: Eventually) -> None:
    """Publishers skip it until it has been drained, its reader hears of it, and then it gets what is published."""
    gaps: list[zkms.Gap] = []
    sub = connect().subscribe("jobs", name="loose", limit=5, overflow="gap", on_gap=gaps.append)
    for number in range(8):
        bus.publish("jobs", number)
    got: list[int] = []
    while (message := sub.get(timeout=1.0)) is not None:
        got.append(message.data)
        message.ack()
    assert got == [0, 1, 2, 3, 4]
    assert len(gaps) == 1
    eventually(lambda: not bus.subscriptions("jobs")[0].full)
    bus.publish("jobs", 8)
    message = sub.get(timeout=10)
    assert message is not None
    assert message.data == 8


@pytest.mark.of_threads
def test_a_flag_is_taken_down_by_the_next_reader_if_the_last_one_did_not_come_to_it(
    bus: Bus, connect: Connect, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had told of the gap, and was killed: publishers would skip the queue for ever."""
    gaps: list[zkms.Gap] = []
    first = connect()
    sub = first.subscribe("jobs", name="loose", limit=5, overflow="gap", on_gap=gaps.append)
    monkeypatch.setattr(sub, "flagged", lambda: None)
    for number in range(8):
        bus.publish("jobs", number)
    sub.ack([message for _ in range(5) for message in sub.fetch(1, timeout=10)])
    eventually(lambda: sub.get(timeout=0.1) is None and gaps)
    first.close()
    assert bus.subscriptions("jobs")[0].full
    again = connect().subscribe("jobs", name="loose", on_gap=gaps.append)
    eventually(lambda: again.get(timeout=0.1) is None and not bus.subscriptions("jobs")[0].full)
    bus.publish("jobs", 8)
    message = again.get(timeout=10)
    assert message is not None
    assert message.data == 8


def test_a_message_that_would_not_fit_as_a_dead_letter_is_refused(bus: Bus, connect: Connect) -> None:
    """Before it is stored: nothing can get stuck later. A live subscription takes larger ones."""
    live = connect().subscribe("jobs")
    large = b"x" * 450_000
    bus.publish("jobs", large)
    message = live.get(timeout=10)
    assert message is not None
    assert message.data == large
    sub = connect().subscribe("jobs", group="workers", partitions=1, max_attempts=1)
    with pytest.raises(zkms.MessageTooLarge, match="at most 376,832 bytes"):
        bus.publish("jobs", large)
    bus.publish("jobs", b"x" * 370_000)
    job = sub.get(timeout=10)
    assert job is not None
    job.nak()
    assert dead_letters(bus, "workers", "jobs") == 1


def test_a_message_that_was_overtaken_after_a_takeover_can_be_given_back_and_acked(bus: Bus, connect: Connect) -> None:
    """One behind it in its frame was reserved before it: that says nothing of this one, which waits for its key."""
    bus.create_group("jobs", "workers", partitions=1)
    bus.parts.session.multi([SetData(bus.parts.tree.ledger("workers", "jobs", 0), encode(Ledger("dead", "x", 1)))])
    bus.publish("jobs", "first", key="a")
    bus.publish_many("jobs", ["second", "other"], key=lambda data: "b" if data == "other" else "a")
    sub = connect().subscribe("jobs", group="workers", partitions=1, max_attempts=None)
    seen = []
    naks = {"first": 0.5, "second": 0.0}
    while len(seen) < 5:
        message = sub.get(timeout=10)
        assert message is not None, seen
        seen.append((message.data, message.attempts))
        if message.data in naks:
            message.nak(delay=naks.pop(message.data))
        else:
            message.ack()
    assert seen == [("first", 1), ("other", 1), ("first", 2), ("second", 1), ("second", 2)]


def test_the_letter_of_a_message_that_its_readers_died_of_says_how_often(
    bus: Bus, connect: Connect, eventually: Eventually
) -> None:
    """Nobody gives it out once more, so the ledger alone knows."""
    bus.create_group("jobs", "workers", partitions=1)
    bus.publish("jobs", "poison")
    ledger = Ledger("dead", "x", 3, {0: Part(0, "", {0: Try(3)})})
    bus.parts.session.multi([SetData(bus.parts.tree.ledger("workers", "jobs", 0), encode(ledger))])
    sub = connect().subscribe("jobs", group="workers", partitions=1, max_attempts=3)
    assert sub.get(timeout=0.5) is None
    eventually(lambda: len(bus.dead_letters()) == 1)
    [letter] = bus.dead_letters()
    assert (letter.data, letter.attempts, letter.error) == ("poison", 3, "its readers died")
