"""One thread carries the traffic of all connections: they neither see nor harm one another."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

import pytest

from tests.support.buses import Eventually
from zkms.errors import ConnectionLost
from zkms.testing import Proxy
from zkms.zookeeper.connection import Connection
from zkms.zookeeper.io_thread import LINGER, IoThread, io_thread
from zkms.zookeeper.operations import Create
from zkms.zookeeper.session import Session, State

OpenSession = Callable[..., Session]


def io_threads() -> int:
    """How many I/O threads there are."""
    return sum(thread.name == "zkms-io" for thread in threading.enumerate())


class Idle:
    """A connection that has nothing to do."""

    listed = False

    def work(self, connection: socket.socket, *, read: bool) -> bool:
        """Nothing."""
        return False

    def wants(self, connection: socket.socket) -> tuple[bool, bool]:
        """Nothing."""
        return False, False

    def look(self, connection: socket.socket) -> bool:
        """Nothing."""
        return False


def test_many_connections_have_one_thread_and_each_gets_its_own_answers(open_session: OpenSession, root: str) -> None:
    """Asked all at once, a hundred times each."""
    sessions = [open_session() for _ in range(10)]
    for number, session in enumerate(sessions):
        session.multi([Create(f"{root}/{number}", str(number).encode())])
    answers = [
        (number, session.get_async(f"{root}/{number}")) for _ in range(100) for number, session in enumerate(sessions)
    ]
    assert all(answer.result(30)[0] == str(number).encode() for number, answer in answers)
    assert io_threads() == 1


def test_a_connection_that_takes_nothing_does_not_hold_up_the_others(
    open_session: OpenSession, proxy: Proxy, root: str
) -> None:
    """Megabytes wait for a server that does not read; another session is answered meanwhile."""
    stuck, other = open_session(proxy.hosts, session_timeout=20.0), open_session()
    proxy.stop_reading()
    waiting = [stuck.multi_async([Create(f"{root}/stuck-{i}", b"x" * 500_000)]) for i in range(20)]
    for i in range(20):
        other.multi([Create(f"{root}/other-{i}")])
    assert not waiting[-1].done()
    proxy.heal()
    for each in waiting:
        each.result(60)


def test_a_connection_that_breaks_ends_alone(open_session: OpenSession, proxy: Proxy, root: str) -> None:
    """Its request fails; the other session has never been cut off, and its own comes back."""
    broken, other = open_session(proxy.hosts), open_session()
    states: list[State] = []
    other.listen(lambda: states.append(other.state))
    cut = proxy.cut_reply(op="multi")
    with pytest.raises(ConnectionLost):
        broken.multi_async([Create(f"{root}/cut")]).result(30)
    assert cut.wait(10)
    other.multi([Create(f"{root}/other")])
    broken.wait_connected(30)
    broken.multi([Create(f"{root}/again")])
    assert states == []


def test_an_answer_that_cannot_be_read_ends_its_connection_alone(
    open_session: OpenSession, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised while a connection is served is told to that connection's own thread."""
    odd, other = open_session(), open_session()
    take = Connection._take_frame

    def fail(connection: Connection, frame: memoryview) -> bool:
        if connection is odd._connection:
            monkeypatch.setattr(Connection, "_take_frame", take)
            raise ValueError("made up")
        return take(connection, frame)

    monkeypatch.setattr(Connection, "_take_frame", fail)
    with pytest.raises(ConnectionLost):
        odd.multi_async([Create(f"{root}/odd")]).result(30)
    other.multi([Create(f"{root}/other")])
    odd.wait_connected(30)
    odd.multi([Create(f"{root}/again")])


def test_an_io_thread_that_fails_has_all_connections_made_anew(
    open_session: OpenSession, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not end with all that it carries; sessions live on, as after any loss of a connection."""
    sessions = [open_session() for _ in range(3)]
    work = IoThread._work

    def fail(*args: object, **options: object) -> None:
        monkeypatch.setattr(IoThread, "_work", work)
        raise MemoryError("made up")

    monkeypatch.setattr(IoThread, "_work", fail)
    with pytest.raises(ConnectionLost):
        sessions[0].multi_async([Create(f"{root}/first")]).result(30)
    for number, session in enumerate(sessions):
        session.wait_connected(30)
        session.multi([Create(f"{root}/{number}")])
        assert session.generation == 1
    assert io_threads() == 1


def test_the_thread_ends_when_nobody_is_left_and_comes_back_with_the_next(eventually: Eventually) -> None:
    """A program that has closed its buses has nothing of ours left."""
    own = IoThread()
    for _ in range(2):
        near, far = socket.socketpair()
        goodbye, bell = socket.socketpair()
        for each in (near, goodbye):
            each.setblocking(False)
        with near, far, goodbye, bell:
            assert own.carry(Idle(), near, goodbye, 0.1) == []
            bell.send(b"x")
            assert own.carry(Idle(), near, goodbye, 60.0) == [goodbye]
        assert own.alive
        eventually(lambda: not own.alive, timeout=10 * LINGER)


def test_a_forked_child_has_an_io_thread_of_its_own(open_session: OpenSession) -> None:
    """The parent's thread is not there, and its sockets are not the child's to read."""
    open_session()
    before = io_thread()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"own" if io_thread() is not before and not io_thread().alive else b"same")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reading, 10) == b"own"
    os.close(reading)
    os.close(writing)
    assert io_thread() is before
