"""What it is all for: processes that die or sleep at the worst moment, on a real ZooKeeper."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from zkms_cleaner import Cleaner
from zkms_cleaner.orphans import PURGED

from tests.cleaner.orphanage import entries, make_orphan, messages
from zkms.bus import Bus
from zkms.server.server import Server
from zkms.tree.records import QueueState, decode

PROGRAMS = Path(__file__).parent / "programs"
Spawn = Callable[..., subprocess.Popen[str]]
SESSION_TIMEOUT = 4.0


def test_a_killed_subscriber_with_10_000_messages_is_purged_in_time_and_its_neighbour_is_untouched(
    observer: Bus,
    connect: Callable[..., Bus],
    spawn: Spawn,
    zookeeper: Server,
    zookeeper_root: str,
    eventually: Callable[..., None],
) -> None:
    """Gone within session time-out + grace + interval; the neighbour has every message, before, during and after."""
    grace, interval, count = 2.0, 1.0, 10_000
    victim = spawn(str(PROGRAMS / "subscriber.py"), zookeeper.hosts, zookeeper_root, "users")
    assert victim.stdout is not None
    dead = victim.stdout.readline().strip()
    received: list[int] = []
    neighbour = connect().subscribe("users", lambda message: received.append(message.data))
    waiting = connect().subscribe("users", ack="manual")
    with ThreadPoolExecutor(16) as pool:  # a few thousand znodes
        list(pool.map(lambda number: observer.publish("users", number, timeout=60.0), range(count)))
    queue, spared = observer.parts.tree.queue(dead, "users"), observer.parts.tree.queue(waiting.id, "users")
    assert (messages(observer, queue), messages(observer, spared)) == (count, count)
    cleaner = Cleaner(observer.parts.session, observer.parts.tree, observer.client_id, interval=interval, grace=grace)
    cleaner.start()
    try:
        victim.kill()
        killed = time.monotonic()
        eventually(lambda: observer.parts.session.exists(queue) is None, timeout=60.0)
        took = time.monotonic() - killed
    finally:
        cleaner.close()
    # ZooKeeper expires sessions by ticks, and the last sweep needs its time: a second for each.
    assert grace <= took <= SESSION_TIMEOUT + grace + interval + 2.0
    assert observer.parts.session.exists(observer.parts.tree.subscription(dead)) is None
    assert messages(observer, spared) == count
    state, stat = observer.parts.session.get(spared)
    assert (decode(state, QueueState).gone, stat.version) == ("", 0)
    observer.publish("users", count)
    eventually(lambda: len(received) == count + 1)
    assert sorted(received) == list(range(count + 1))
    assert {info.subscription for info in observer.subscriptions("users")} == {neighbour.id, waiting.id}


def stopped_and_continued(
    observer: Bus,
    spawn: Spawn,
    hosts: str,
    root: str,
    eventually: Callable[..., None],
    step: str,
    *broken: str,
) -> tuple[str, int, int]:
    """Stop a sweeping leader past its session, let it go on: how it ended, and the entries before and after."""
    queue = make_orphan(observer, entries=2000)
    leader = spawn(str(PROGRAMS / "sweep_once.py"), hosts, root, step, *broken)
    assert leader.stdout is not None
    assert leader.stdin is not None
    assert leader.stdout.readline() == f"at {step}\n"
    assert len(observer.parts.session.children(observer.parts.tree.cleaner)[0]) == 1
    leader.send_signal(signal.SIGSTOP)
    eventually(lambda: observer.parts.session.children(observer.parts.tree.cleaner)[0] == [], what="the expiry")
    before = entries(observer, queue)
    leader.stdin.write("go on\n")
    leader.stdin.flush()
    leader.send_signal(signal.SIGCONT)
    ended = leader.stdout.readline().strip()
    return ended, before, entries(observer, queue)


@pytest.mark.parametrize("step", ["1", "2", "10"], ids=["before condemning", "after condemning", "while deleting"])
def test_a_cleaner_stopped_past_its_session_and_continued_deletes_nothing_more(
    observer: Bus, spawn: Spawn, zookeeper: Server, zookeeper_root: str, eventually: Callable[..., None], step: str
) -> None:
    """Whatever it was about to do; nobody else leads meanwhile, so every deletion would be its own."""
    ended, before, after = stopped_and_continued(observer, spawn, zookeeper.hosts, zookeeper_root, eventually, step)
    assert ended == "refused"
    assert before == after
    assert before == (2000 if step == "1" else 2000 - 50 * (int(step) - 1))
    gone = decode(observer.parts.session.get(observer.parts.tree.queue("ghost", "users"))[0], QueueState).gone
    assert gone == ("" if step == "1" else PURGED)


@pytest.mark.parametrize("step", ["1", "10"])
def test_without_fencing_the_same_cleaner_does_delete_more(
    observer: Bus, spawn: Spawn, zookeeper: Server, zookeeper_root: str, eventually: Callable[..., None], step: str
) -> None:
    """The test above is no accident: with the check of the lead taken out, the same steps end in deletions."""
    ended, before, after = stopped_and_continued(
        observer, spawn, zookeeper.hosts, zookeeper_root, eventually, step, "unfenced"
    )
    assert ended == "finished"
    assert after < before


def test_an_unexpected_error_in_a_sweep_is_counted_and_the_next_one_works(
    observer: Bus, eventually: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread neither dies nor goes on in silence."""
    queue = make_orphan(observer)
    errors: list[Exception] = []
    cleaner = Cleaner(
        observer.parts.session, observer.parts.tree, observer.client_id, interval=0.1, grace=0.0, failed=errors.append
    )
    real, calls = cleaner._sweeper.find, iter(range(3))

    def find() -> object:
        if next(calls, None) is not None:
            raise ZeroDivisionError("nobody thought of this")
        return real()

    monkeypatch.setattr(cleaner._sweeper, "find", find)
    cleaner.start()
    try:
        eventually(lambda: observer.parts.session.exists(queue) is None)
        eventually(lambda: cleaner.failures == 0)
    finally:
        cleaner.close()
    assert [type(error) for error in errors] == [ZeroDivisionError] * 3
    assert "nobody thought of this" in caplog.text


def test_the_next_sweep_comes_when_a_grace_is_over_not_an_interval_later(
    observer: Bus, eventually: Callable[..., None]
) -> None:
    """A long interval delays the finding of an orphan, not its removal."""
    queue = make_orphan(observer)
    cleaner = Cleaner(observer.parts.session, observer.parts.tree, observer.client_id, interval=600.0, grace=1.5)
    cleaner.start()
    try:
        eventually(lambda: observer.parts.session.exists(queue) is None, timeout=20.0)
    finally:
        cleaner.close()


def test_every_client_takes_part_in_the_election_unless_it_opts_out(
    connect: Callable[..., Bus], observer: Bus, eventually: Callable[..., None]
) -> None:
    """One that closes gives up its candidacy at once."""
    connect(cleaner=False)
    clients = [connect(cleaner=True) for _ in range(2)]
    eventually(lambda: len(observer.parts.session.children(observer.parts.tree.cleaner)[0]) == 2)
    clients[0].close()
    assert len(observer.parts.session.children(observer.parts.tree.cleaner)[0]) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "zkms-cleaner"][1:]
