"""An ensemble that loses its leader, all of its nodes, or one that just stops answering."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import zkms
from tests.support.audience import Listener
from tests.support.buses import Connect, Eventually
from verification.faults.cache.run import Run
from zkms.server.server import Server
from zkms.testing import ZooKeeperContainer
from zkms.zookeeper.session import State

Audience = Callable[..., list[Listener]]
TOPIC = "users"
SESSION = 10.0


@pytest.fixture
def connect(zookeeper_ensemble: Server, zookeeper_root: str) -> Iterator[Connect]:
    """Connect buses to the ensemble under the test's root, closed after it."""
    with buses(zookeeper_ensemble, zookeeper_root) as start:
        yield start


class buses:  # noqa: N801 -- a context manager
    """Buses on a server, closed at the end."""

    def __init__(self, server: Server, root: str) -> None:
        """Connect to these."""
        self._server, self._root = server, root
        self._buses: list[zkms.Bus] = []

    def __enter__(self) -> Connect:
        return self._connect

    def _connect(self, **options: object) -> zkms.Bus:
        defaults = {"root": self._root, "cleaner": False, "session_timeout": SESSION, "request_timeout": 60.0}
        bus = zkms.connect(self._server.hosts, **{**defaults, **options})  # type: ignore[arg-type]
        self._buses.append(bus)
        return bus

    def __exit__(self, *_exc: object) -> None:
        self._server.heal()  # so that they can say goodbye
        for bus in self._buses:
            with suppress(zkms.ZkmsError):
                bus.close()


class Stream:
    """A thread that publishes numbers without pause: one by one, and many at once."""

    def __init__(self, bus: zkms.Bus) -> None:
        """Begin."""
        self.published = 0
        self.errors: list[BaseException] = []
        self._bus = bus
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish)
        self._thread.start()

    def _publish(self) -> None:
        try:
            while not self._stop.is_set():
                self._bus.publish(TOPIC, self.published)
                self.published += 1
                self._bus.publish_many(TOPIC, range(self.published, self.published + 10))
                self.published += 10
        except zkms.ZkmsError as error:
            self.errors.append(error)

    def end(self) -> int:
        """Stop, publish a last number and return it."""
        self._stop.set()
        self._thread.join()
        assert self.errors == []
        self._bus.publish(TOPIC, self.published)
        return self.published


def check(listener: Listener, last: int, first: int = 0) -> None:
    """All numbers once and in order; without a gap, unless its session expired: then it was told."""
    got = listener.await_last(last, timeout=60)
    if listener.bus.parts.session.generation == 1:
        assert listener.gaps == []
        assert got == list(range(first, last + 1))
    else:
        assert listener.gaps
        assert got == sorted(set(got))


def current_leader(server: Server, eventually: Eventually) -> int:
    """Which node leads, once one does."""
    eventually(lambda: server.leader() is not None)
    leader = server.leader()
    assert leader is not None
    return leader


def test_a_leader_killed_in_the_middle_of_publishing_and_subscribing_costs_no_message(
    zookeeper_ensemble: Server, connect: Connect, audience: Audience, eventually: Eventually
) -> None:
    """Nothing lost, nothing twice, in order; also for those that subscribe while nobody leads."""
    listeners = audience(TOPIC)
    stream = Stream(connect())
    comers: list[tuple[int, Listener]] = []
    churning = threading.Event()
    errors: list[BaseException] = []

    def churn() -> None:
        bus = connect()
        try:
            while not churning.is_set():
                comer = Listener(connect(), TOPIC)
                comers.append((stream.published, comer))
                bus.subscribe(TOPIC).unsubscribe()
        except zkms.ZkmsError as error:
            errors.append(error)

    churner = threading.Thread(target=churn)
    try:
        eventually(lambda: stream.published > 50)
        churner.start()
        zookeeper_ensemble.kill(current_leader(zookeeper_ensemble, eventually))
        before, came = stream.published, len(comers)
        eventually(lambda: stream.published > before + 50, timeout=60, what="progress under a new leader")
        eventually(lambda: len(comers) > came + 1 or errors, timeout=60)
    finally:
        churning.set()
        churner.join()
        last = stream.end()
    assert errors == []
    for listener in listeners:
        check(listener, last)
    for known, listener in comers:
        first = listener.await_last(last)[0]
        assert isinstance(first, int)
        assert first <= known + 11, "a publish was under way when subscribe() returned, with eleven numbers at the most"
        check(listener, last, first)


def test_an_ensemble_restarted_as_a_whole_keeps_sessions_queues_and_numbers(
    zookeeper_ensemble: Server, connect: Connect, audience: Audience, eventually: Eventually
) -> None:
    """All nodes die at once and come back with their data: subscribers go on, or are told what they may have missed."""
    listeners = audience(TOPIC)
    stream = Stream(connect())
    try:
        eventually(lambda: stream.published > 50)
        for node in range(3):
            zookeeper_ensemble.kill(node)
        before = stream.published
        for node in range(3):
            zookeeper_ensemble.restart(node, wait=False)
        eventually(lambda: stream.published > before + 50, timeout=60, what="progress after the restart")
    finally:
        last = stream.end()
    for listener in listeners:
        check(listener, last)


def node_of(bus: zkms.Bus, server: Server) -> int:
    """Which node a bus is connected to."""
    assert bus.parts.session._client.handler.connection is not None
    return server.ports.index(bus.parts.session._client.handler.connection.getpeername()[1])


def test_clients_of_a_follower_that_stops_answering_move_on_within_their_session_time(
    zookeeper_ensemble: Server, connect: Connect, eventually: Eventually
) -> None:
    """Its connections stay open and swallow everything; publishers and subscribers find another node."""
    leader = current_leader(zookeeper_ensemble, eventually)
    follower = (leader + 1) % 3
    publisher = subscriber = None
    while publisher is None or subscriber is None:
        bus = connect()
        if node_of(bus, zookeeper_ensemble) != follower:
            bus.close()
        elif publisher is None:
            publisher = bus
        else:
            subscriber = bus
    listener = Listener(subscriber, TOPIC)
    publisher.publish(TOPIC, 0)
    listener.await_last(0)
    zookeeper_ensemble.pause(follower)
    began = time.monotonic()
    publisher.publish(TOPIC, 1, timeout=60)
    assert time.monotonic() - began < SESSION + 3.0
    assert node_of(publisher, zookeeper_ensemble) != follower
    check(listener, 1)
    assert time.monotonic() - began < 2 * SESSION
    assert node_of(subscriber, zookeeper_ensemble) != follower


def test_caches_serve_nothing_old_when_the_leader_is_killed(
    zookeeper_ensemble: Server, zookeeper_root: str, tmp_path: Path
) -> None:
    """Four processes read and write a shared database through caches meanwhile; every read is checked."""
    run = Run(seconds=6, session_timeout=6.0, kill_leader=True).on(zookeeper_ensemble, zookeeper_root, tmp_path)
    assert run.findings.broken == []
    assert run.findings.stale == []
    assert run.findings.finished > 0


@pytest.mark.containers
def test_a_leader_cut_off_from_the_network_costs_no_message(docker_needed: None, eventually: Eventually) -> None:
    """It keeps believing that it leads for a while, and nothing that it says counts; later it follows."""
    with ZooKeeperContainer(3) as ensemble, buses(ensemble, "/zkms") as connect:
        listeners = [Listener(connect(), TOPIC) for _ in range(3)]
        stream = Stream(connect())
        try:
            eventually(lambda: stream.published > 50)
            leader = current_leader(ensemble, eventually)
            ensemble.disconnect(leader)
            before = stream.published
            eventually(lambda: stream.published > before + 50, timeout=60, what="progress without the old leader")
            ensemble.reconnect(leader)
            before = stream.published
            eventually(lambda: ensemble.leader() not in (None, leader), timeout=60)
            eventually(lambda: stream.published > before + 50, timeout=60)
        finally:
            last = stream.end()
        for listener in listeners:
            check(listener, last)
            eventually(lambda listener=listener: listener.bus.parts.session.state is State.CONNECTED)
