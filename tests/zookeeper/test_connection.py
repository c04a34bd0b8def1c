"""The connection: large answers that come slowly, and kazoo's words in between ours."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.buses import Eventually
from zkms.errors import ConnectionLost
from zkms.testing import EmbeddedZooKeeper, Proxy
from zkms.zookeeper.connection import CHUNK, ROOM, WORTH_WAITING, Connection
from zkms.zookeeper.operations import Create
from zkms.zookeeper.session import Session

OpenSession = Callable[..., Session]
LARGE = 10 * WORTH_WAITING


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """One server for this file: where it runs makes no difference to our end of the connection."""
    with EmbeddedZooKeeper() as server:
        yield server


@pytest.fixture
def root(open_session: OpenSession, request: pytest.FixtureRequest) -> str:
    """A znode of the test's own."""
    return str(open_session().multi([Create(f"/{request.node.name}-", sequence=True)])[0])


def read_slowly(session: Session, proxy: Proxy, path: str) -> int:
    """Read a large znode whose pieces come for far longer than an answer may stay out; how long its data is."""
    proxy.trickle(LARGE // 50, 0.15)  # 7.5 seconds in all, of which 4 may pass without a sign of life
    try:
        return len(session.get_async(path).result(60)[0])
    finally:
        proxy.heal()


def test_a_large_answer_that_comes_slowly_arrives(open_session: OpenSession, proxy: Proxy, root: str) -> None:
    """The socket wakes us only when the whole of it is there; its pieces are a sign of life all the same."""
    session = open_session(proxy.hosts, session_timeout=6.0)
    session.multi([Create(f"{root}/large", b"x" * LARGE)])
    assert read_slowly(session, proxy, f"{root}/large") == LARGE
    assert proxy.requests["connect"] == 1


def test_without_looking_a_large_answer_that_comes_slowly_is_given_up(
    open_session: OpenSession, proxy: Proxy, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else tells a slow answer from none, so the test above is one."""
    session = open_session(proxy.hosts, session_timeout=6.0)
    session.multi([Create(f"{root}/large", b"x" * LARGE)])
    monkeypatch.setattr(Connection, "look", lambda _flow, _connection: False)
    with pytest.raises(ConnectionLost):
        read_slowly(session, proxy, f"{root}/large")


def write_while_nobody_reads(session: Session, proxy: Proxy, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a ping fall due when a transaction is half written, then let all of it flow on."""
    due = threading.Event()
    take = Connection.take_half_written

    def pinged(connection: Connection) -> bytes:
        if connection._out:
            due.set()
        return take(connection)

    monkeypatch.setattr(Connection, "take_half_written", pinged)
    connection = session._client.handler.connection
    assert connection is not None
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 * 1024)
    proxy.stop_reading()
    written = [session.multi_async([Create(f"{root}/{i}", b"x" * LARGE)]) for i in range(12)]
    assert due.wait(60)
    proxy.heal()
    for each in written:
        each.result(60)


def test_a_ping_is_not_written_into_the_middle_of_a_request(
    open_session: OpenSession, proxy: Proxy, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes behind the request that the socket has not taken wholly yet, and all of them are carried out."""
    session = open_session(proxy.hosts, session_timeout=12.0)
    write_while_nobody_reads(session, proxy, root, monkeypatch)
    assert sorted(session.children(root)[0], key=int) == [str(i) for i in range(12)]
    assert proxy.requests["connect"] == 1


def test_a_ping_in_the_middle_of_a_request_would_break_the_connection(
    open_session: OpenSession, proxy: Proxy, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above is one."""
    session = open_session(proxy.hosts, session_timeout=12.0)
    monkeypatch.setattr(Connection, "take_half_written", lambda _flow: b"")
    with pytest.raises(ConnectionLost):
        write_while_nobody_reads(session, proxy, root, monkeypatch)


def test_room_is_kept_for_frames_and_given_back_after_a_larger_answer(
    open_session: OpenSession, root: str, eventually: Eventually
) -> None:
    """A connection that reads frames makes no room for each; one that has read a long listing holds it no longer."""
    session = open_session()
    connection = session._connection
    assert len(connection._in) == CHUNK
    session.multi([Create(f"{root}/large", b"x" * (CHUNK + 1))])
    assert len(session.get(f"{root}/large")[0]) == CHUNK + 1
    assert len(connection._in) == ROOM
    room = connection._in
    assert len(session.get(f"{root}/large")[0]) == CHUNK + 1
    assert connection._in is room
    names = [f"{'n' * 200}{i:04}" for i in range(2 * ROOM // 200)]
    for begin in range(0, len(names), 500):
        session.multi([Create(f"{root}/{name}") for name in names[begin : begin + 500]])
    assert len(session.children(root)[0]) == len(names) + 1
    eventually(lambda: len(connection._in) <= ROOM)
    assert len(session.get(f"{root}/large")[0]) == CHUNK + 1
