"""The session: what a connection's faults look like to those above it."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Connect

import zkms
import zkms.zookeeper.connection
from tests.support.buses import Eventually
from zkms.config import Config
from zkms.errors import (
    BadVersion,
    Closed,
    ConnectionLost,
    NodeExists,
    NodeMissing,
    StoreError,
    TransactionFailed,
    UsedAfterFork,
    ZkmsError,
)
from zkms.server.server import Server
from zkms.testing import EmbeddedZooKeeper, Proxy, expire
from zkms.zookeeper.connection import Connection
from zkms.zookeeper.operations import MAX_TRANSACTION, Check, Create, Delete, SetData
from zkms.zookeeper.session import Session, State, failed_with

OpenSession = Callable[..., Session]
LeftBehind = Callable[[], tuple[int, int]]


def nothing_left(now: tuple[int, int], before: tuple[int, int]) -> bool:
    """Less than before is fine: what an earlier test left may have ended."""
    return now[0] <= before[0] and now[1] <= before[1]


# -- connecting ------------------------------------------------------------------------------------------------------


@contextmanager
def listening(backlog: int = 16) -> Iterator[socket.socket]:
    """Listen on a port of loopback, and do nothing more."""
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as server:
        yield server


def address(server: socket.socket) -> str:
    """Where a socket listens."""
    return f"127.0.0.1:{server.getsockname()[1]}"


def failure_to_connect(hosts: str) -> str:
    """What connect() says of these hosts, which it must say in time and without leaving a thread."""
    before = threading.active_count()
    began = time.monotonic()
    with pytest.raises(ConnectionLost) as failure:
        zkms.connect(hosts, connect_timeout=1.0)
    assert time.monotonic() - began < 1.0 + 4.0
    assert not failure.value.outcome_unknown
    deadline = time.monotonic() + 12.0
    while threading.active_count() > before:  # one that resolves a name or connects ends when the system lets it
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)
    assert "\n" not in str(failure.value)
    return str(failure.value)


def test_a_chroot_that_does_not_exist_is_named(zookeeper: Server) -> None:
    """Rather than a znode of ours."""
    with pytest.raises(zkms.StoreError, match=r"chroot .*/nowhere' does not exist"):
        zkms.connect(f"{zookeeper.hosts}/nowhere", cleaner=False)


def test_a_host_that_does_not_exist_is_named() -> None:
    """The error says which host, and that it does not exist."""
    assert "no-such-host.invalid:2181: no such host" in failure_to_connect("no-such-host.invalid:2181")


def test_a_port_where_nobody_listens_is_named() -> None:
    """The error says that the connection was refused, and where."""
    with listening() as server:
        hosts = address(server)
    assert f"{hosts}: Connection refused" in failure_to_connect(hosts)


def test_a_web_server_is_recognised_as_no_zookeeper() -> None:
    """What answers in another language is called what it is not."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert f"{address(server.socket)} is no ZooKeeper" in failure_to_connect(address(server.socket))
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_never_answers_is_told_from_one_that_is_not_there() -> None:
    """A silent server costs the time-out and not more."""
    with listening() as server:
        assert "accepts connections but does not answer" in failure_to_connect(address(server))


def test_a_host_that_does_not_even_accept_costs_the_time_out_and_not_more() -> None:
    """A full backlog looks like a firewall that drops packets: the attempt to connect just hangs."""
    with listening(backlog=0) as server, socket.socket() as first, socket.socket() as second:
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        assert "does not accept connections" in failure_to_connect(address(server))


def test_one_good_host_among_bad_ones_is_enough(zookeeper: Server, zookeeper_root: str) -> None:
    """Hosts that do not work are passed over."""
    with listening() as server:
        refused = address(server)
    hosts = f"no-such-host.invalid:2181,{refused},{zookeeper.hosts}"
    with zkms.connect(hosts, root=zookeeper_root) as bus:
        assert bus.topics() == []


def test_every_host_is_judged_by_itself() -> None:
    """The error lists what was found at each."""
    with listening() as silent:
        with listening() as server:
            refused = address(server)
        said = failure_to_connect(f"{refused},{address(silent)}")
        assert f"{refused}: Connection refused" in said
        assert f"{address(silent)} accepts connections but does not answer" in said


# -- states ----------------------------------------------------------------------------------------------------------


def test_states_follow_the_connection(open_session: OpenSession, proxy: Proxy, eventually: Eventually) -> None:
    """Connected, suspended while cut off, connected again with the same session, closed at the end."""
    session = Session(Config(hosts=proxy.hosts, session_timeout=5.0))
    assert session.state is State.CONNECTING
    seen: list[State] = []
    session.listen(lambda: seen.append(session.state))
    session.start()
    try:
        identity = session.client_id
        proxy.refuse()
        proxy.drop()
        eventually(lambda: session.state is State.SUSPENDED)
        proxy.accept()
        eventually(lambda: session.state is State.CONNECTED)
        assert (session.client_id, session.generation) == (identity, 1)
        assert seen == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]
    finally:
        session.close()
    assert session.state is State.CLOSED
    with pytest.raises(Closed):
        session.get("/")
    session.close()


def test_a_reconnect_keeps_the_generation_and_an_expiry_raises_it(
    bus: zkms.Bus, zookeeper: Server, zookeeper_root: str, eventually: Eventually
) -> None:
    """Whoever holds ephemerals can tell the two apart."""
    bus.parts.session._client.drop()
    eventually(lambda: bus.parts.session.state is State.SUSPENDED or bus.parts.session.state is State.CONNECTED)
    bus.parts.session.get("/")
    assert bus.parts.session.generation == 1
    expire(bus)
    eventually(lambda: bus.parts.session.generation == 2)
    bus.parts.session.get("/")


def test_a_new_session_does_not_go_back_in_time(
    open_session: OpenSession, proxy: Proxy, root: str, zookeeper: Server, eventually: Eventually
) -> None:
    """kazoo forgets with its session how far it had seen: a server that lags behind would be welcome to it."""
    session = open_session(proxy.hosts)
    session.multi([SetData(root, b"seen")])
    seen = session._client.last_zxid
    asked: list[int] = []
    invoke = ConnectionHandler._invoke

    def note(handler: Any, timeout: float, request: Any, *args: Any) -> Any:
        if isinstance(request, Connect):
            asked.append(request.last_zxid_seen)
        return invoke(handler, timeout, request, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConnectionHandler, "_invoke", note)
        proxy.refuse()
        proxy.drop()
        eventually(lambda: session.state is State.SUSPENDED)
        thief = KazooClient(zookeeper.hosts, client_id=session.client_id)
        thief.start()
        thief.stop()
        thief.close()
        asked.clear()
        proxy.accept()
        eventually(lambda: session.generation == 2)
    assert len(asked) == 2, "the old session is asked for, and then a new one"
    assert min(asked) >= seen


def test_a_zookeeper_that_has_lost_its_data_is_accepted_after_a_while(eventually: Eventually) -> None:
    """It knows less than we have seen, and would refuse us for ever; the tree is made again, and a gap announced."""
    gaps: list[str] = []
    with EmbeddedZooKeeper() as zookeeper, zkms.connect(zookeeper.hosts, session_timeout=1.5) as bus:
        subscription = bus.subscribe("topic", on_gap=lambda gap: gaps.append(gap.reason))
        for i in range(20):
            bus.publish("topic", i)
        zookeeper.kill(0)
        shutil.rmtree(zookeeper.data / "node-1" / "version-2")
        zookeeper.restart(0)
        eventually(lambda: bus.parts.session.generation == 2 and bus.parts.session.state is State.CONNECTED)
        eventually(lambda: bus.subscriptions("topic"))
        bus.publish("topic", "after")
        while (message := subscription.get(timeout=10)) is not None and message.data != "after":
            assert gaps == []
        assert message is not None
        assert gaps != []


# -- requests while cut off ------------------------------------------------------------------------------------------


def test_a_request_while_suspended_fails_at_once_and_is_never_sent(
    open_session: OpenSession, proxy: Proxy, root: str, eventually: Eventually
) -> None:
    """Thousands of them block nobody, although kazoo's queue takes fewer than three hundred."""
    session = open_session(proxy.hosts)
    proxy.refuse()
    proxy.drop()
    eventually(lambda: session.state is State.SUSPENDED)
    began = time.monotonic()
    replies = [session.multi_async([Create(f"{root}/never-{i}")]) for i in range(2000)]
    errors = [reply.exception(timeout=0) for reply in replies]
    assert time.monotonic() - began < 2.0
    assert all(isinstance(error, ConnectionLost) and not error.outcome_unknown for error in errors)
    proxy.accept()
    assert session.children(root)[0] == []


def test_a_waiting_request_gives_up_at_its_deadline(
    open_session: OpenSession, proxy: Proxy, root: str, eventually: Eventually
) -> None:
    """Reads and transactions alike: neither for ever, nor before their time."""
    session = open_session(proxy.hosts, request_timeout=1.0)
    proxy.refuse()
    proxy.drop()
    eventually(lambda: session.state is State.SUSPENDED)
    for ask in (lambda: session.get(root), lambda: session.multi([SetData(root, b"")])):
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match="not connected to ZooKeeper") as failure:
            ask()
        assert 0.9 < time.monotonic() - began < 3.0
        assert not failure.value.outcome_unknown


def test_a_waiting_request_is_sent_when_the_connection_is_back(
    open_session: OpenSession, proxy: Proxy, root: str, eventually: Eventually
) -> None:
    """A short break costs the caller time only."""
    session = open_session(proxy.hosts, request_timeout=20.0, session_timeout=8.0)
    proxy.refuse()
    proxy.drop()
    eventually(lambda: session.state is State.SUSPENDED)
    threading.Timer(0.3, proxy.accept).start()
    session.multi([Create(f"{root}/made")])
    assert session.children(root)[0] == ["made"]


def test_a_read_is_asked_again_and_a_transaction_is_not(open_session: OpenSession, proxy: Proxy, root: str) -> None:
    """Whether a transaction was carried out is for its caller to find out."""
    session = open_session(proxy.hosts)
    cut = proxy.cut_reply(op="get_data")
    assert session.get(root)[0] == b""
    assert cut.is_set()
    before = proxy.requests["multi"]
    cut = proxy.cut_reply(op="multi")
    with pytest.raises(ConnectionLost) as failure:
        session.multi([Create(f"{root}/done")])
    assert failure.value.outcome_unknown
    assert cut.wait(5)
    assert session.children(root)[0] == ["done"]
    assert proxy.requests["multi"] == before + 1


def test_an_answer_that_comes_just_when_the_time_is_over_is_taken(open_session: OpenSession) -> None:
    """A process that was stopped may find both: that its time is over, and the answer. It got a bare TimeoutError."""

    class JustInTime(Future[str]):
        def result(self, timeout: float | None = None) -> str:
            if self.done():
                return super().result(timeout)
            self.set_result("here I am")
            raise TimeoutError

    assert open_session()._result(JustInTime(), time.monotonic()) == "here I am"


def test_a_publish_and_a_receipt_keep_to_their_own_time_out(
    proxy: Proxy, zookeeper: Server, zookeeper_root: str, eventually: Eventually
) -> None:
    """Not to the request time-out, which may be much longer: in a black hole, and when it has been noticed."""
    with zkms.connect(zookeeper.hosts, root=zookeeper_root, cleaner=False) as other:
        other.subscribe("topic", ack="manual")
        bus = zkms.connect(proxy.hosts, root=zookeeper_root, cleaner=False, session_timeout=4.0, request_timeout=60.0)
        with bus:
            receipt = bus.publish("topic", b"before")
            proxy.black_hole()
            for state in (State.CONNECTED, State.SUSPENDED):
                eventually(lambda state=state: bus.parts.session.state is state)
                began = time.monotonic()
                with pytest.raises(ConnectionLost):
                    bus.publish("topic", b"late", timeout=0.5)
                assert time.monotonic() - began < 2.0
                began = time.monotonic()
                with pytest.raises(ConnectionLost) as failure:
                    bus.publish_many("topic", [b"late"], timeout=0.5)
                assert time.monotonic() - began < 2.0
                assert failure.value.outcome_unknown is (state is State.CONNECTED)
                began = time.monotonic()
                with suppress(ConnectionLost):
                    receipt.wait(0.5)
                assert time.monotonic() - began < 3.0
                assert receipt.pending
            proxy.heal()
            bus.publish("topic", b"after")
            assert receipt.wait(0).pending


# -- black holes -----------------------------------------------------------------------------------------------------


def test_a_black_hole_is_noticed_although_the_client_keeps_sending(
    open_session: OpenSession, proxy: Proxy, root: str, eventually: Eventually
) -> None:
    """Requests count as pings to kazoo, which would stay connected for as long as it has something to send."""
    session = open_session(proxy.hosts, session_timeout=3.0)
    proxy.black_hole()
    replies = []
    began = time.monotonic()
    while session.state is State.CONNECTED:
        replies.append(session.exists_async(root))
        assert time.monotonic() - began < 2.0 + 1.5, "two thirds of the session's time have long passed"
        time.sleep(0.02)
    assert time.monotonic() - began > 0.5, "a server may be slow for a moment"
    for reply in replies:
        assert isinstance(reply.exception(timeout=2), ConnectionLost)
    proxy.heal()
    assert session.exists(root) is not None


def test_the_reply_deadline_follows_the_session_time_that_the_server_grants() -> None:
    """A client that asks for more than the server's maximum must not wait past the session that it got."""
    with EmbeddedZooKeeper(config={"maxSessionTimeout": 3000}) as zookeeper, Proxy(zookeeper.hosts) as proxy:
        session = Session(Config(hosts=proxy.hosts, session_timeout=60.0))
        session.start()
        session.get("/")
        proxy.black_hole()
        began = time.monotonic()
        while session.state is State.CONNECTED:
            session.exists_async("/")
            assert time.monotonic() - began < 2.0 + 1.5
            time.sleep(0.02)
        session.close()


def test_closing_is_bounded_in_a_black_hole(open_session: OpenSession, proxy: Proxy) -> None:
    """The server cannot hear the goodbye; the session is left to expire."""
    session = open_session(proxy.hosts, session_timeout=10.0)
    proxy.black_hole()
    began = time.monotonic()
    session.close()
    assert time.monotonic() - began < 5.0


def test_closing_a_bus_with_subscriptions_is_bounded_in_a_black_hole(proxy: Proxy, zookeeper_root: str) -> None:
    """However many subscriptions there are, the lost connection is paid for once."""
    bus = zkms.connect(proxy.hosts, root=zookeeper_root, session_timeout=4.0, request_timeout=4.0)
    for i in range(5):
        bus.subscribe(f"topic-{i}", lambda _message: None)
    bus.publish("topic-1", b"data")
    proxy.black_hole()
    began = time.monotonic()
    bus.close(timeout=1.0)
    assert time.monotonic() - began < 4.0 + 4.0
    assert bus.parts.session.state is State.CLOSED


def test_closing_a_bus_that_is_cut_off_takes_its_time_out_once(
    proxy: Proxy, zookeeper_root: str, eventually: Eventually
) -> None:
    """Acks that cannot be sent are waited for by all subscriptions together, not by one after the other."""
    bus = zkms.connect(proxy.hosts, root=zookeeper_root, session_timeout=4.0)
    subscriptions = [bus.subscribe(f"topic-{i}") for i in range(5)]
    for subscription in subscriptions:
        bus.publish(subscription.topic, b"data")
    eventually(lambda: all(queue.entries == 1 for queue in bus.queues()))
    proxy.refuse()
    proxy.drop()
    eventually(lambda: bus.parts.session.state is State.SUSPENDED)
    for subscription in subscriptions:
        subscription.get(timeout=0)
    began = time.monotonic()
    bus.close(timeout=1.0)
    assert time.monotonic() - began < 5.0


# -- a dead kazoo ----------------------------------------------------------------------------------------------------


def kill_connection_thread(session: Session, path: str, monkeypatch: pytest.MonkeyPatch) -> ConnectionLost:
    """Make the connection thread die of a reply, and return what became of the request."""

    def deadly(*_args: object) -> NoReturn:
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "_take_frame", deadly)
        thread = session._client._connection._connection_routine
        reply = session.get_async(f"{path}/missing")
        thread.join(10)
        assert not thread.is_alive()
    error = reply.exception(timeout=10)
    assert isinstance(error, ConnectionLost)
    return error


def test_a_dead_connection_thread_is_replaced_and_its_session_taken_over(
    open_session: OpenSession, root: str, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """kazoo would stay dead for ever; here the ephemerals live on, and those who wait are told."""
    session = open_session(session_timeout=8.0)
    session.multi([Create(f"{root}/mine", ephemeral=True)])
    identity = session.client_id
    rung = threading.Event()
    session.exists(f"{root}/mine", rung.set)
    states: list[State] = []
    session.listen(lambda: states.append(session.state))
    error = kill_connection_thread(session, root, monkeypatch)
    assert error.outcome_unknown
    assert rung.wait(5), "a watch that is lost with its client must ring"
    eventually(lambda: session.state is State.CONNECTED)
    stat = session.exists(f"{root}/mine")
    assert stat is not None
    assert identity is not None
    assert stat.ephemeralOwner == identity[0]
    assert session.client_id == identity
    assert session.generation == 1
    assert states == [State.SUSPENDED, State.CONNECTED]


def test_a_connection_thread_may_die_again_and_again(
    open_session: OpenSession,
    root: str,
    monkeypatch: pytest.MonkeyPatch,
    left_behind: LeftBehind,
    eventually: Eventually,
) -> None:
    """Nothing of the dead ones is left: neither threads nor sockets."""
    session = open_session(session_timeout=8.0)
    before = left_behind()
    for _ in range(3):
        kill_connection_thread(session, root, monkeypatch)
        assert session.get(root)[0] == b""
    eventually(lambda: nothing_left(left_behind(), before))


def test_an_error_code_that_nobody_knows_costs_a_connection_and_no_more(
    open_session: OpenSession, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later ZooKeeper may have new ones: whoever asked is told that the outcome is unknown."""

    def unknown() -> NoReturn:
        raise RuntimeError("Invalid error code")

    session = open_session(session_timeout=8.0)
    with monkeypatch.context() as patch:
        patch.setattr(zkms.zookeeper.connection, "EXCEPTIONS", defaultdict(unknown))
        error = session.get_async(f"{root}/missing").exception(timeout=10)
    assert isinstance(error, ConnectionLost)
    assert error.outcome_unknown
    assert session.get(root)[0] == b""
    assert session.generation == 1


# -- watches ---------------------------------------------------------------------------------------------------------


def test_a_watch_rings_once_at_a_change(open_session: OpenSession, root: str, eventually: Eventually) -> None:
    """It is a bell and carries no news; who hears it asks again."""
    session = open_session()
    rings: list[str] = []
    session.get(root, lambda: rings.append("data"))
    session.children(root, lambda: rings.append("children"))
    session.exists(f"{root}/a", lambda: rings.append("exists"))
    session.multi([SetData(root, b"1"), Create(f"{root}/a")])
    session.multi([SetData(root, b"2"), Create(f"{root}/b")])
    eventually(lambda: len(rings) == 3)
    assert sorted(rings) == ["children", "data", "exists"]


def test_a_watch_rings_when_the_connection_is_lost_and_can_be_set_again(
    open_session: OpenSession, proxy: Proxy, root: str
) -> None:
    """A change that happens while nobody watches must not go unnoticed."""
    session, other = open_session(proxy.hosts), open_session()
    lost, changed = threading.Event(), threading.Event()
    session.get(root, lost.set)
    proxy.drop()
    assert lost.wait(5)
    session.get(root, changed.set)
    assert not changed.is_set()
    other.multi([SetData(root, b"new")])
    assert changed.wait(5)


# -- transactions ----------------------------------------------------------------------------------------------------


def test_a_refused_transaction_names_the_operation_and_the_cause(open_session: OpenSession, root: str) -> None:
    """Among many operations the one that failed is told, by number, path and reason; nothing was done."""
    session = open_session()
    session.multi([Create(f"{root}/there", b"x")])
    cases = [
        (Create(f"{root}/there"), NodeExists, "exists already"),
        (SetData(f"{root}/there", b"", 7), BadVersion, "changed meanwhile"),
        (Delete(f"{root}/gone"), NodeMissing, "no such znode"),
        (Check(f"{root}/there", 3), BadVersion, "changed meanwhile"),
    ]
    for operation, kind, words in cases:
        with pytest.raises(TransactionFailed, match=words) as failure:
            session.multi([Create(f"{root}/before"), operation, Create(f"{root}/after")])
        assert failure.value.index == 1
        assert failure.value.operation == operation
        assert operation.path in str(failure.value)
        assert failed_with(failure.value, kind)
        assert failed_with(failure.value, kind, path=operation.path)
        assert not failed_with(failure.value, kind, path=f"{root}/before")
    assert session.children(root)[0] == ["there"]


def test_a_carried_out_transaction_answers_for_each_operation(open_session: OpenSession, root: str) -> None:
    """A path for each create, a Stat for each set, True for the others."""
    session = open_session()
    made, counted, written, checked, deleted = session.multi(
        [
            Create(f"{root}/a", b"x"),
            Create(f"{root}/n-", sequence=True),
            SetData(f"{root}/a", b"y", 0),
            Check(f"{root}/a", 1),
            Delete(f"{root}/a"),
        ]
    )
    assert (made, counted) == (f"{root}/a", f"{root}/n-0000000001")
    assert (written.version, checked, deleted) == (1, True, True)


def test_a_transaction_over_the_limit_is_refused_before_it_is_sent(
    open_session: OpenSession, proxy: Proxy, root: str
) -> None:
    """The server would drop the connection, and everything in flight with it."""
    session = open_session(proxy.hosts)
    before = proxy.requests["multi"]
    with pytest.raises(StoreError, match=r"over the limit of 524,288"):
        session.multi([SetData(root, bytes(MAX_TRANSACTION))])
    with pytest.raises(StoreError, match="over the limit"):
        session.multi_async([Create(f"{root}/{i}", bytes(1000)) for i in range(600)])
    assert proxy.requests["multi"] == before
    assert session.state is State.CONNECTED


def test_the_largest_transaction_is_taken_by_the_server(open_session: OpenSession, root: str) -> None:
    """The limit is on the safe side of the server's own."""
    session = open_session()
    session.multi([SetData(root, bytes(MAX_TRANSACTION - 1024))])
    session.multi([SetData(root, b"")])
    names = [f"{i:0200}" for i in range((MAX_TRANSACTION - 64) // (96 + len(root) + 201))]
    session.multi([Create(f"{root}/{name}") for name in names])
    session.multi([Delete(f"{root}/{name}") for name in names])


# -- fork, and what is left behind -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_bus_that_crossed_a_fork_says_so_and_leaves_the_parents_alone(bus: zkms.Bus) -> None:
    """In the child everything raises at once, close() does nothing, and the parent's session goes on."""
    subscription = bus.subscribe("topic")
    receipt = bus.publish("topic", b"before")
    attempts: dict[str, Callable[[], object]] = {
        "publish": lambda: bus.publish("topic", b"child"),
        "publish_many": lambda: bus.publish_many("topic", [b"child"]),
        "subscribe": lambda: bus.subscribe("other"),
        "get": lambda: subscription.get(timeout=5),
        "unsubscribe": subscription.unsubscribe,
        "wait": lambda: receipt.wait(5),
        "topics": bus.topics,
        "close": bus.close,
    }
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # only what cannot hang: the parent waits for us
        results = {}
        for name, attempt in attempts.items():
            try:
                attempt()
                results[name] = "returned"
            except UsedAfterFork as error:
                results[name] = str(error)
            except BaseException as error:  # noqa: BLE001 -- told to the parent
                results[name] = repr(error)
        os.write(writer, json.dumps(results).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        results = json.loads(pipe.read())
    os.waitpid(child, 0)
    assert results.pop("close") == "returned"
    expected = "this bus belongs to the parent process: call zkms.connect() after fork()"
    assert results == dict.fromkeys(results, expected)
    bus.publish("topic", b"after")
    assert [message.data for message in subscription.fetch(2, timeout=5)] + [
        message.data for message in subscription.fetch(1, timeout=1)
    ] == [b"before", b"after"]


def test_fifty_buses_leave_no_thread_and_no_socket(
    zookeeper: Server, zookeeper_root: str, left_behind: LeftBehind, eventually: Eventually
) -> None:
    """A process that connects and closes all day long does not grow."""

    def use() -> None:
        with zkms.connect(zookeeper.hosts, root=zookeeper_root) as bus:
            bus.subscribe("topic", lambda _message: None)
            bus.publish("topic", b"x").wait(5)

    use()
    before = left_behind()
    for _ in range(50):
        use()
    eventually(lambda: nothing_left(left_behind(), before))


def test_closing_from_several_threads_is_harmless(zookeeper: Server, zookeeper_root: str) -> None:
    """Whoever comes second finds it done."""
    bus = zkms.connect(zookeeper.hosts, root=zookeeper_root)
    errors: list[BaseException] = []

    def close() -> None:
        try:
            bus.close()
        except ZkmsError as error:
            errors.append(error)

    threads = [threading.Thread(target=close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert errors == []
