"""Whoever removes messages leaves a trail as well: the cleaner, and `zkms purge`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from zkms_cleaner import Cleaner

from tests.support.buses import Connect, Eventually
from tests.support.trails import read
from zkms.server.server import Server


def run(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`zkms` as a process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ZKMS_")}
    return subprocess.run(
        [sys.executable, "-m", "zkms", *args], env=clean | environ, capture_output=True, text=True, timeout=90
    )


def leave_behind(connect: Connect, messages: int) -> str:
    """A queue with so many messages in it, whose subscriber ended without a word; returns its name."""
    bus = connect(client_id="dead", trail=None)
    blocked = threading.Event()
    subscription = bus.subscribe("users", lambda _message: blocked.wait(), prefetch=1)
    publisher = connect(trail=None)
    publisher.publish_many("users", range(messages))
    bus.parts.session.close()  # as if the process were gone
    blocked.set()
    return subscription.id


def test_the_cleaner_records_what_it_purged(connect: Connect, trail: Path, eventually: Eventually) -> None:
    """With the number of messages, not of znodes."""
    name = leave_behind(connect, 1000)
    bus = connect()
    cleaner = Cleaner(
        bus.parts.session, bus.parts.tree, "cleaner", interval=0.1, grace=0.0, trail=bus.parts.context.trail
    )
    cleaner.start()
    eventually(lambda: not bus.queues(), what="the purge")
    cleaner.close()
    bus.close()
    (purged,) = [event for event in read(trail) if event.event == "purged"]
    assert (purged.sub, purged.topic, purged.n) == (name, "users", 1000)
    assert "gone" in str(purged.reason)


def test_cleaner_once_records_what_it_purged(
    connect: Connect, trail: Path, zookeeper: Server, zookeeper_root: str, eventually: Eventually
) -> None:
    """The same from the command line, told by the environment."""
    name = leave_behind(connect, 10)
    bus = connect(trail=None)
    eventually(lambda: not bus.subscriptions("users"), what="the registration to go with its session")
    environ = {"ZKMS_HOSTS": zookeeper.hosts, "ZKMS_ROOT": zookeeper_root, "ZKMS_TRAIL": str(trail)}
    done = run("cleaner", "--once", "--grace", "0", **environ)
    assert done.returncode == 0, done.stderr
    (purged,) = [event for event in read(trail) if event.event == "purged"]
    assert (purged.sub, purged.n) == (name, 10)


def test_purge_records_what_it_removed(connect: Connect, trail: Path, zookeeper: Server, zookeeper_root: str) -> None:
    """And who did it."""
    bus = connect(trail=None)
    blocked = threading.Event()
    subscription = bus.subscribe("users", lambda _message: blocked.wait(), prefetch=1)
    bus.publish_many("users", range(10))
    options = ["--hosts", zookeeper.hosts, "--root", zookeeper_root, "--trail", str(trail)]
    done = run("purge", subscription.id, "users", "--yes", *options)
    blocked.set()
    assert done.returncode == 0, done.stderr
    (purged,) = [event for event in read(trail) if event.event == "purged"]
    assert (purged.sub, purged.topic, purged.n) == (subscription.id, "users", 10)
    assert str(purged.reason).startswith("purged by ")


def test_the_purge_of_a_partition_names_the_group(
    connect: Connect, trail: Path, zookeeper: Server, zookeeper_root: str
) -> None:
    """Its messages were published for the group: a lane is nobody's name."""
    bus = connect(trail=None)
    bus.create_group("jobs", "workers", partitions=2)
    bus.publish_many("jobs", range(10))
    options = ["--hosts", zookeeper.hosts, "--root", zookeeper_root, "--trail", str(trail)]
    for lane in ("workers#0", "workers#1"):
        assert run("purge", lane, "jobs", "--yes", *options).returncode == 0
    purged = [event for event in read(trail) if event.event == "purged"]
    assert [(event.sub, event.n, event.partition in (0, 1)) for event in purged] == [("workers", 10, True)]


def test_what_makes_room_for_younger_messages_is_recorded(connect: Connect, trail: Path) -> None:
    """By the publisher that drops it, in messages: two frames of three have to go."""
    bus = connect(client_id="ann")
    bus.subscribe("users", name="latest", limit=8, overflow="drop-oldest").close()
    for _ in range(4):
        bus.publish_many("users", range(3))
    waiting = sum(queue.messages or 0 for queue in bus.queues(count=True))
    bus.close()
    purged = [event for event in read(trail) if event.event == "purged"]
    assert {(event.sub, event.topic) for event in purged} == {("latest", "users")}
    assert sum(event.n or 0 for event in purged) == 12 - waiting > 0
    assert str(purged[0].reason).startswith("dropped: more than 8 messages")


def test_the_cleaner_records_expired_messages_and_not_znodes(
    connect: Connect, trail: Path, eventually: Eventually
) -> None:
    """A frame of many is one znode."""
    bus = connect()
    bus.create_group("offers", "mailers", partitions=2)
    bus.publish_many("offers", range(100), key=str, ttl=0.1)
    cleaner = Cleaner(bus.parts.session, bus.parts.tree, "cleaner", interval=0.1, trail=bus.parts.context.trail)
    cleaner.start()
    eventually(lambda: not any(queue.entries for queue in bus.queues()), what="the expiry")
    cleaner.close()
    bus.close()
    purged = [event for event in read(trail) if event.event == "purged"]
    assert {(event.sub, event.topic) for event in purged} == {("mailers", "offers")}
    assert sum(event.n or 0 for event in purged) == 100


def test_pub_and_sub_record(trail: Path, zookeeper: Server, zookeeper_root: str, connect: Connect) -> None:
    """`--trail` is theirs too."""
    bus = connect(trail=None)
    bus.subscribe("users")
    options = ["--hosts", zookeeper.hosts, "--root", zookeeper_root, "--trail", str(trail)]
    assert run("pub", "users", "42", *options).returncode == 0
    assert run("sub", "users", "--timeout", "0.1", *options).returncode == 4
    events = [event.event for event in read(trail)]
    assert "published" in events
    assert "subscribed" in events
