"""Staged publishing: what the winners have put aside is published, each message once, whatever is killed when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from typing import Any

import pytest
from kazoo.client import KazooClient

from zkms import Bus, InvalidArgument, ProducerFenced, Subscription
from zkms.connect import committing as committing_bus
from zkms.connect import connect as connect_bus
from zkms.replay import stage as staging
from zkms.replay.stage import Chunk, Committer, Connected, NotAllPublished, Stage, StagingFull, new_run
from zkms.server.server import Server
from zkms.tree.paths import Tree


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten messages in a chunk, so that a few make many."""
    monkeypatch.setattr(staging, "CHUNK_MESSAGES", 10)


@pytest.fixture
def committer(zookeeper: Server, zookeeper_root: str) -> Committer:
    """Commits the job `etl`."""
    return committing(zookeeper, zookeeper_root)


def committing(zookeeper: Server, root: str, **options: Any) -> Committer:
    """As a process of its own would."""

    def connect(name: str) -> AbstractContextManager[Connected]:
        return committing_bus(connect_bus(zookeeper.hosts, root, producer=name, cleaner=False))

    return Committer(connect, "etl", **options)


def stage(bus: Bus, run: str, numbers: range, topic: str = "users", **options: Any) -> list[Chunk]:
    """What one process puts aside."""
    staged = Stage(bus.parts.session, bus.parts.tree, "etl", run, **options)
    for number in numbers:
        staged.add(topic, number, key=f"k{number}", headers={"n": str(number)})
    return staged.finish()


def received(subscription: Subscription, count: int) -> list[int]:
    """So many messages, and what comes right behind them."""
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += [message.data for message in subscription.fetch(1000, timeout=1.0)]
    return found + [message.data for message in subscription.fetch(1000, timeout=0.2)]


def left(raw: KazooClient, tree: Tree) -> list[str]:
    """Runs that are still staged."""
    return raw.get_children(tree.staged_job("etl")) if raw.exists(tree.staged_job("etl")) else []


def stop_after(monkeypatch: pytest.MonkeyPatch, frames: int) -> None:
    """The process ends just before its next transaction."""
    send, sent = Bus._send, []

    def counted(self: Bus, *args: Any) -> Any:
        if len(sent) == frames:
            raise KeyboardInterrupt
        sent.append(args)
        return send(self, *args)

    monkeypatch.setattr(Bus, "_send", counted)


def test_what_the_winning_processes_have_staged_is_published_in_order(
    bus: Bus, committer: Committer, raw: KazooClient, tree: Tree
) -> None:
    """Of an attempt that was given up nothing is; a commit of the same batch again publishes nothing."""
    users, orders = bus.subscribe("users"), bus.subscribe("orders")
    run = new_run()
    stage(bus, run, range(25))  # given up
    chunks = [*stage(bus, run, range(25)), *stage(bus, run, range(25, 40)), *stage(bus, run, range(3), "orders")]
    assert committer.commit(run, 0, chunks) == 43
    first = users.get(timeout=10)
    assert first is not None
    assert (first.data, first.key, first.headers["n"]) == (0, "k0", "0")
    assert received(users, 39) == list(range(1, 40))
    assert received(orders, 3) == [0, 1, 2]
    again = new_run()
    assert committer.commit(again, 0, stage(bus, again, range(25))) == 0
    assert committer.commit(run, 0, chunks) == 0
    assert received(users, 0) == []
    assert left(raw, tree) == []
    third = new_run()
    assert committer.commit(third, 1, stage(bus, third, range(5))) == 5
    assert received(users, 5) == list(range(5))


@pytest.mark.parametrize("frames", [0, 1, 3])
def test_a_commit_that_ends_in_the_middle_is_finished_by_the_next(
    bus: Bus, zookeeper: Server, zookeeper_root: str, monkeypatch: pytest.MonkeyPatch, frames: int
) -> None:
    """What the next one has staged for the same batch is thrown away: the first has been decided."""
    users = bus.subscribe("users")
    run, again = new_run(), new_run()
    with monkeypatch.context() as patch:
        stop_after(patch, frames)
        with pytest.raises(KeyboardInterrupt):
            committing(zookeeper, zookeeper_root).commit(run, 0, stage(bus, run, range(45)))
    assert committing(zookeeper, zookeeper_root).commit(again, 0, stage(bus, again, range(45))) == 45 - frames * 10
    assert received(users, 45) == list(range(45))


def test_without_the_producers_number_it_would_be_published_twice(
    bus: Bus, zookeeper: Server, zookeeper_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mechanism switched off: the second commit begins at the first message."""
    users = bus.subscribe("users")
    run = new_run()
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            committing(zookeeper, zookeeper_root).commit(run, 0, stage(bus, run, range(45)))
    monkeypatch.setattr(Committer, "_fence", lambda *_args: 0)
    committing(zookeeper, zookeeper_root).commit(run, 0, [])
    assert received(users, 65) == [*range(20), *range(45)]


def test_a_commit_killed_with_its_process_is_finished_by_another(
    bus: Bus, committer: Committer, zookeeper: Server, zookeeper_root: str
) -> None:
    """kill -9, from within, after the second transaction."""
    users = bus.subscribe("users")
    run = new_run()
    chunks = stage(bus, run, range(45))
    code = f"""
import os, signal
from zkms.replay import stage as staging
from zkms.bus import Bus
from zkms.connect import committing, connect
send, sent = Bus._send, []
def counted(self, *args):
    if len(sent) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    sent.append(args)
    return send(self, *args)
Bus._send = counted
open_bus = lambda name: committing(connect({zookeeper.hosts!r}, {zookeeper_root!r}, producer=name, cleaner=False))
chunks = [staging.Chunk(*each) for each in {[(c.part, c.number, c.topic, c.count) for c in chunks]!r}]
staging.Committer(open_bus, "etl").commit({run!r}, 0, chunks)
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=120, env=os.environ)
    assert done.returncode == -signal.SIGKILL
    again = new_run()
    assert committer.commit(again, 0, stage(bus, again, range(45))) == 25
    assert received(users, 45) == list(range(45))


def test_a_commit_that_was_only_thought_dead_cannot_go_on(
    bus: Bus, zookeeper: Server, zookeeper_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is overtaken between two transactions, and its next one is refused."""
    users = bus.subscribe("users")
    run = new_run()
    send, sent = Bus._send, []

    def overtaken(self: Bus, *args: Any) -> Any:
        sent.append(args)
        if len(sent) == 3:
            monkeypatch.setattr(Bus, "_send", send)
            assert committing(zookeeper, zookeeper_root).commit(new_run(), 0, []) == 25
        return send(self, *args)

    monkeypatch.setattr(Bus, "_send", overtaken)
    with pytest.raises(ProducerFenced):
        committing(zookeeper, zookeeper_root).commit(run, 0, stage(bus, run, range(45)))
    assert received(users, 45) == list(range(45))


def test_what_nobody_subscribes_to_is_dropped_where_that_is_fine_and_counts_as_dealt_with(
    bus: Bus, zookeeper: Server, zookeeper_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing moves the producer's number then: how far it is has to be noted, or the rest would come twice."""
    users = bus.subscribe("users")
    run = new_run()
    chunks = [*stage(bus, run, range(20), "archive"), *stage(bus, run, range(30))]
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            committing(zookeeper, zookeeper_root, if_nobody="drop").commit(run, 0, chunks)
    assert committing(zookeeper, zookeeper_root, if_nobody="drop").commit(run, 0, chunks) == 10
    assert received(users, 30) == list(range(30))


def test_a_commit_that_cannot_begin_is_taken_back_and_one_that_has_begun_is_not(
    bus: Bus, committer: Committer, raw: KazooClient, tree: Tree
) -> None:
    """The error says how many were published, and how to go on."""
    run = new_run()
    chunks = stage(bus, run, range(20))
    with pytest.raises(NotAllPublished, match="0 of 20 messages were published: nobody subscribes"):
        committer.commit(run, 0, chunks)
    committer.abort(run)
    assert left(raw, tree) == []
    users, run = bus.subscribe("users"), new_run()
    chunks = [*stage(bus, run, range(20)), *stage(bus, run, range(5), "users-two")]
    with pytest.raises(NotAllPublished, match=r"20 of 25 messages.*commit again under the id 'etl'") as caught:
        committer.commit(run, 0, chunks)
    assert (caught.value.published, caught.value.total) == (20, 25)
    committer.abort(run)
    second = bus.subscribe("users-two")
    assert committer.commit(new_run(), 0, []) == 5
    assert (received(users, 20), received(second, 5)) == (list(range(20)), list(range(5)))


def test_staging_is_bounded_and_gives_room_back(bus: Bus, raw: KazooClient, tree: Tree) -> None:
    """By the bytes of all processes together; an attempt that fails frees its own."""
    run = new_run()
    stage(bus, run, range(20), max_bytes=2000)
    failed = Stage(bus.parts.session, bus.parts.tree, "etl", run, max_bytes=2000)
    for number in range(9):
        failed.add("users", f"message {number}")
    failed.finish()
    for _ in range(9):
        failed.add("users", "x" * 300)
    with pytest.raises(StagingFull, match="more than 2,000 bytes were staged"):
        failed.finish()
    before = int(raw.get(tree.staged_run("etl", run))[0])
    failed.discard()
    assert int(raw.get(tree.staged_run("etl", run))[0]) < before
    assert len(raw.get_children(tree.staged_run("etl", run))) == 1
    with pytest.raises(InvalidArgument, match="is over the limit of"):
        failed.add("users", b"x" * 200_000)
    with pytest.raises(InvalidArgument, match="invalid topic"):
        failed.add("a/b", 1)
    with pytest.raises(InvalidArgument, match="invalid job"):
        Stage(bus.parts.session, bus.parts.tree, "a/b", run)


def test_what_nobody_committed_and_nobody_will_ask_for_is_removed_by_a_later_job(
    bus: Bus,
    committer: Committer,
    raw: KazooClient,
    tree: Tree,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is left for ever."""
    bus.subscribe("users", lambda _message: None)
    stage(bus, abandoned := new_run(), range(5))
    for name in ("older", "once-older", "unfinished"):
        raw.create(tree.staged_job(name), b'{"zkms":"staged","done":4,"run":"%s"}' % (b"r" if name[0] == "u" else b""))
        raw.create(tree.producer(staging.producer_of(name)), b"{}")
    run = new_run()
    committer.commit(run, 0, stage(bus, run, range(5)))
    assert left(raw, tree) == [abandoned]
    monkeypatch.setattr(staging, "SWEEP_EVERY", -60.0)
    monkeypatch.setattr(staging, "ABANDONED", -60.0)
    monkeypatch.setattr(staging, "REMEMBERED", -60.0)
    run = new_run()
    committer.commit(run, 1, stage(bus, run, range(5)))
    assert sorted(raw.get_children(tree.staged)) == ["etl", "unfinished"]
    assert left(raw, tree) == []
    assert sorted(raw.get_children(tree.producers))[-2:] == ["staged-etl", "staged-unfinished"]
