"""Competing consumers: the ten tables of test cases that a paper on such a system ends with, one by one.

A table's prerequisite and its steps are those of the paper. Where the paper's system gave messages up (a full queue, a
message that nobody acks), ours tells somebody: that is said in the test.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import zkms
from tests.requirements.conftest import Crew, Worker, block, publish_blocks
from tests.support.buses import Connect, Eventually
from tests.support.keys import keys_for
from zkms.server.server import Server

TOPIC = "events"
PROGRAMS = Path(__file__).parent / "programs"


def got_by(workers: list[Worker]) -> int:
    """How many messages they have got altogether."""
    return sum(len(worker.got) for worker in workers)


def waiting(bus: zkms.Bus) -> int:
    """Entries that wait in all queues."""
    return sum(queue.entries for queue in bus.queues())


def dead_letters(bus: zkms.Bus) -> list[str]:
    """The dead letters of the workers."""
    try:
        return bus.parts.session.children(bus.parts.tree.dead_queue("workers", TOPIC))[0]
    except zkms.NodeMissing:
        return []


# -- table 1 -----------------------------------------------------------------------------------------------------------


def test_table_1_what_is_published_first_waits_for_a_member(bus: zkms.Bus, crew: Crew, eventually: Eventually) -> None:
    """R1: published to a channel without subscribers, messages wait until one is ready."""
    assert bus.create_group(TOPIC, "workers", partitions=2)
    publish_blocks(bus, TOPIC, keys_for(2), 5)
    assert waiting(bus) > 0
    (worker,) = crew(1, TOPIC)
    eventually(lambda: len(worker.got) == 10)
    for key in keys_for(2):
        assert [data for data in worker.got if data[0] == key] == block(key, *range(5))


def test_table_1_what_is_published_to_two_members_is_divided_equally(
    bus: zkms.Bus, crew: Crew, eventually: Eventually
) -> None:
    """R1: with two subscribers there first, each gets half; also where no message has a key."""
    workers = crew(2, TOPIC)
    publish_blocks(bus, TOPIC, keys_for(2), 5)
    eventually(lambda: [len(worker.got) for worker in workers] == [5, 5])
    bus.publish_many(TOPIC, range(128 * 4))
    eventually(lambda: [len(worker.got) for worker in workers] == [5 + 256, 5 + 256])


def test_table_1_a_thousand_messages_are_received_and_partitioned_correctly(
    bus: zkms.Bus, crew: Crew, eventually: Eventually
) -> None:
    """R1: two subscribers, two partitions, a thousand messages: all arrive, each partition at one of the two."""
    workers = crew(2, TOPIC)
    publish_blocks(bus, TOPIC, keys_for(2), 500)
    eventually(lambda: got_by(workers) == 1000)
    assert sorted(worker.got[0][0] for worker in workers) == sorted(keys_for(2))
    for worker in workers:
        assert worker.got == block(worker.got[0][0], *range(500))


def test_table_1_past_the_limit_the_publisher_is_told_and_nothing_is_dropped(
    bus: zkms.Bus, crew: Crew, eventually: Eventually
) -> None:
    """R1, R3: ten thousand messages into a queue for one thousand; the paper dropped nine thousand without a word."""
    bus.create_group(TOPIC, "workers", partitions=1, limit=1000)
    stored = 0
    while stored < 1000:
        bus.publish_many(TOPIC, range(stored, stored + 50))
        stored += 50
    with pytest.raises(zkms.QueueFull):
        bus.publish_many(TOPIC, range(1000, 10_000))
    (worker,) = crew(1, TOPIC, partitions=1, limit=1000)
    eventually(lambda: len(worker.got) == stored)
    assert worker.got == list(range(stored))
    eventually(lambda: waiting(bus) == 0)
    bus.publish(TOPIC, "there is room again")
    eventually(lambda: worker.got[-1] == "there is room again")


# -- table 2 -----------------------------------------------------------------------------------------------------------


def test_table_2_channels_are_found_as_they_come(bus: zkms.Bus, connect: Connect) -> None:
    """R2: two channels at the start, then a third one: anybody lists two, then three, and who subscribes to them."""
    bus.create_group("first", "workers")
    bus.create_group("second", "workers")
    stranger = connect()
    assert [topic.topic for topic in stranger.topics()] == ["first", "second"]
    bus.subscribe("third", name="audit")
    assert [(topic.topic, topic.subscriptions) for topic in stranger.topics()] == [
        ("first", 1), ("second", 1), ("third", 1)
    ]  # fmt: skip
    assert [(info.subscription, info.kind) for info in stranger.subscriptions("first")] == [("workers", "group")]
    assert [(info.subscription, info.kind) for info in stranger.subscriptions("third")] == [("audit", "durable")]


# -- table 3 -----------------------------------------------------------------------------------------------------------


def test_table_3_two_large_partitions_go_to_two_members(bus: zkms.Bus, crew: Crew, eventually: Eventually) -> None:
    """R3: ten messages in two partitions, two subscribers: one partition each; queues are filled, and empty after."""
    workers = crew(2, TOPIC)
    publish_blocks(bus, TOPIC, keys_for(2), 5)
    eventually(lambda: got_by(workers) == 10)
    assert sorted(worker.got for worker in workers) == sorted(block(key, *range(5)) for key in keys_for(2))
    eventually(lambda: waiting(bus) == 0)


def test_table_3_five_small_partitions_go_to_five_members(bus: zkms.Bus, crew: Crew, eventually: Eventually) -> None:
    """R3: five messages in five partitions, five subscribers: one message each."""
    workers = crew(5, TOPIC, partitions=5)
    publish_blocks(bus, TOPIC, keys_for(5), 1)
    eventually(lambda: [len(worker.got) for worker in workers] == [1] * 5)
    assert {worker.got[0][0] for worker in workers} == set(keys_for(5))


def test_table_3_two_channels_at_once_do_not_mix(bus: zkms.Bus, crew: Crew, eventually: Eventually) -> None:
    """R3: the same on two channels at the same time."""
    crews = {topic: crew(5, topic, partitions=5) for topic in ("first", "second")}
    publishing = [
        threading.Thread(target=publish_blocks, args=(bus, topic, keys_for(5), 1)) for topic in crews
    ]  # fmt: skip
    for thread in publishing:
        thread.start()
    for thread in publishing:
        thread.join()
    for workers in crews.values():
        eventually(lambda workers=workers: [len(worker.got) for worker in workers] == [1] * 5)
        assert {worker.got[0][0] for worker in workers} == set(keys_for(5))


# -- table 4 -----------------------------------------------------------------------------------------------------------


def test_table_4_a_small_delay_costs_a_member_nothing(bus: zkms.Bus, crew: Crew, eventually: Eventually) -> None:
    """R4: some messages take a little longer: nobody loses its partition, and nothing is delivered twice."""

    def now_and_then(message: zkms.Message) -> None:
        if message.data[1] % 3 == 0:
            time.sleep(0.3)

    workers = crew(2, TOPIC, work=now_and_then)
    before = [worker.subscription.partitions for worker in workers]
    publish_blocks(bus, TOPIC, keys_for(2), 5)
    eventually(lambda: got_by(workers) == 10)
    assert sorted(worker.got for worker in workers) == sorted(block(key, *range(5)) for key in keys_for(2))
    assert [worker.subscription.partitions for worker in workers] == before


def test_table_4_a_member_that_closes_and_comes_back_goes_on_where_it_was(
    bus: zkms.Bus, connect: Connect, eventually: Eventually
) -> None:
    """R4: both subscribers close; one had done five messages, the other one. Who comes back gets the other four."""
    bus.create_group(TOPIC, "workers", partitions=2)
    key, other = keys_for(2)
    publish_blocks(bus, TOPIC, [key, other], 5)
    first = connect()
    with first.subscribe(TOPIC, group="workers") as subscription:
        done: list[object] = []
        while len(done) < 6:
            message = subscription.get(timeout=20)
            assert message is not None
            if message.key == key or not any(data[0] == other for data in done):
                message.ack()
                done.append(message.data)
    assert sorted(done) == sorted([*block(key, *range(5)), *block(other, 0)])
    worker = Worker(connect(), TOPIC, "workers", lambda _message: None)
    eventually(lambda: len(worker.got) == 4)
    assert worker.got == block(other, 1, 2, 3, 4)


# -- table 5 -----------------------------------------------------------------------------------------------------------


def test_table_5_a_crash_of_the_store_loses_nothing_that_was_accepted_and_repeats_nothing_that_was_done(
    connect: Connect, bus: zkms.Bus, zookeeper: Server, eventually: Eventually
) -> None:
    """R5: ZooKeeper is killed after the fifth message of ten. Those five are there when it is back, in order.

    Who had processed them does not get them again. The other five are refused, and the publisher is told.
    """
    publisher = connect(request_timeout=0.5)
    publisher.create_group(TOPIC, "idle", partitions=1)
    done = Worker(bus, TOPIC, "busy", lambda _message: None, partitions=1)
    accepted, unsure = [], []
    for number in range(10):
        if number == 5:
            eventually(lambda: [queue.entries for queue in bus.queues()] == [0, 5], what="the acks of one group")
            zookeeper.kill(0)
        try:
            publisher.publish(TOPIC, number, timeout=20 if number < 5 else 0.5)
            accepted.append(number)
        except zkms.ConnectionLost as error:
            if error.outcome_unknown:
                unsure.append(number)
    assert accepted == [0, 1, 2, 3, 4]
    zookeeper.restart(0)
    late = Worker(connect(), TOPIC, "idle", lambda _message: None)
    connect().publish(TOPIC, "last")
    eventually(lambda: late.got[-1:] == done.got[-1:] == ["last"])
    assert late.got[:5] == accepted
    assert set(late.got[5:-1]) <= set(unsure)
    assert late.got == done.got


# -- table 6 -----------------------------------------------------------------------------------------------------------


def test_table_6_what_a_crashed_member_had_not_acked_goes_to_another_in_order(
    bus: zkms.Bus, crew: Crew, zookeeper: Server, zookeeper_root: str, eventually: Eventually
) -> None:
    """R6: of its five messages a subscriber acks three and dies in the fourth: the other gets that and the fifth."""
    (worker,) = crew(1, TOPIC)
    command = [sys.executable, PROGRAMS / "crashing.py", zookeeper.hosts, zookeeper_root, TOPIC, "4"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        eventually(lambda: len(worker.subscription.partitions) == 1, what="a partition for each")
        publish_blocks(bus, TOPIC, keys_for(2), 5)
        eventually(lambda: len(worker.got) == 7, timeout=60)
    finally:
        process.kill()
    told = process.communicate()[0].split()
    crashed = next(key for key in keys_for(2) if [data[0] for data in worker.got].count(key) == 2)
    assert told == [f"{crashed}:{number}" for number in range(4)], "three acked, and the one that it died of"
    assert [data for data in worker.got if data[0] == crashed] == block(crashed, 3, 4)
    eventually(lambda: waiting(bus) == 0)


# -- table 7 -----------------------------------------------------------------------------------------------------------


def test_table_7_a_member_that_takes_too_long_gives_its_work_to_another_and_stays(
    bus: zkms.Bus, crew: Crew, connect: Connect, eventually: Eventually
) -> None:
    """R7: one subscriber hangs; what it has not done goes to the one that is fast. It stays a member."""
    hang = threading.Event()

    def slow(_message: zkms.Message) -> None:
        hang.wait(60)

    fast = Worker(connect(), TOPIC, "workers", lambda _message: None, partitions=2, ttr=1.0, max_attempts=None)
    late = Worker(connect(), TOPIC, "workers", slow, partitions=2, ttr=1.0, max_attempts=None)
    workers = [fast, late]
    eventually(lambda: [len(worker.subscription.partitions) for worker in workers] == [1, 1])
    publish_blocks(bus, TOPIC, keys_for(2), 5)
    eventually(lambda: len(fast.got) == 10, what="all of the work, done by the other one")
    for key in keys_for(2):
        assert [data for data in fast.got if data[0] == key] == block(key, *range(5))
    members = bus.parts.session.children(bus.parts.tree.members("workers", TOPIC))[0]
    assert sorted(members) == sorted(worker.bus.client_id for worker in workers)
    hang.set()
    eventually(lambda: late.subscription.partitions, what="a partition for the one that is well again")


# -- table 8 -----------------------------------------------------------------------------------------------------------


def test_table_8_a_message_that_is_never_acked_is_tried_three_times_and_set_aside(
    bus: zkms.Bus, crew: Crew, eventually: Eventually
) -> None:
    """R8: one message of ten fails each time. The paper gave the subscriber up; we give the message to dead letters."""
    poisoned = [keys_for(2)[0], 2]
    attempts: list[int] = []

    def choke(message: zkms.Message) -> None:
        if message.data == poisoned:
            attempts.append(message.attempts)
            raise ValueError("cannot be done")

    workers = crew(2, TOPIC, work=choke, backoff=0.05)
    publish_blocks(bus, TOPIC, keys_for(2), 5)
    eventually(lambda: got_by(workers) == 9)
    assert attempts == [1, 2, 3]
    eventually(lambda: len(dead_letters(bus)) == 1)
    key, other = keys_for(2)
    assert sorted(worker.got for worker in workers) == sorted([block(key, 0, 1, 3, 4), block(other, *range(5))])


# -- table 9 -----------------------------------------------------------------------------------------------------------


def test_table_9_each_block_is_processed_in_order_by_one_member(
    bus: zkms.Bus, connect: Connect, crew: Crew, eventually: Eventually
) -> None:
    """R9: ten messages in two blocks, from two publishers who take turns: each block in order, at one subscriber."""
    workers = crew(2, TOPIC)
    publishers = [bus, connect()]
    for number in range(5):
        for key in keys_for(2):
            publishers[number % 2].publish(TOPIC, [key, number], key=key)
    eventually(lambda: got_by(workers) == 10)
    assert sorted(worker.got for worker in workers) == sorted(block(key, *range(5)) for key in keys_for(2))


# -- table 10 ----------------------------------------------------------------------------------------------------------


def publish_with_ids(bus: zkms.Bus, numbers: range) -> list[int]:
    """Publish messages with ids of their own, in two blocks; those that were stored."""
    keys = keys_for(2)
    receipts = bus.publish_many(
        TOPIC, list(numbers), key=lambda number: keys[number % 2], id=lambda number: f"event-{number}"
    )
    return [number for number, receipt in zip(numbers, receipts, strict=True) if receipt.duplicate_of is None]


def test_table_10_the_same_messages_again_are_dropped(bus: zkms.Bus, crew: Crew, eventually: Eventually) -> None:
    """R10: ten messages twice, then with a new one among them: only that one is delivered."""
    workers = crew(2, TOPIC)
    assert publish_with_ids(bus, range(10)) == list(range(10))
    eventually(lambda: got_by(workers) == 10)
    assert publish_with_ids(bus, range(10)) == []
    assert publish_with_ids(bus, range(11)) == [10]
    eventually(lambda: got_by(workers) == 11)
    with pytest.raises(zkms.DuplicateMessage):
        bus.publish(TOPIC, 3, id="event-3")
    bus.publish(TOPIC, "last")
    eventually(lambda: got_by(workers) == 12)
    assert sorted(str(data) for worker in workers for data in worker.got) == sorted([*map(str, range(11)), "last"])


def test_table_10_also_after_all_members_have_left_and_come_back(
    bus: zkms.Bus, connect: Connect, crew: Crew, eventually: Eventually
) -> None:
    """R10: delivered, all subscribers gone, published again by another process: dropped."""
    workers = crew(2, TOPIC)
    publish_with_ids(bus, range(10))
    eventually(lambda: got_by(workers) == 10)
    for worker in workers:
        worker.subscription.close()
    assert publish_with_ids(connect(), range(10)) == []
    again = crew(2, TOPIC)
    bus.publish_many(TOPIC, ["last"] * 128)
    eventually(lambda: got_by(again) == 128)
    assert {data for worker in again for data in worker.got} == {"last"}
