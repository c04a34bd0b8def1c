"""The proxy: each fault as a plain kazoo client feels it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from tests.support.buses import Eventually
from zkms.errors import InvalidArgument
from zkms.server.words import mode
from zkms.testing import EmbeddedZooKeeper, Proxy
from zkms.testing.faults import Faults

Connect = Callable[..., KazooClient]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedZooKeeper]:
    """One server behind all the proxies of this file."""
    with EmbeddedZooKeeper() as zookeeper:
        yield zookeeper


@pytest.fixture
def proxy(server: EmbeddedZooKeeper) -> Iterator[Proxy]:
    """A proxy of the test's own."""
    with Proxy(server.hosts) as running:
        yield running


@pytest.fixture
def root(server: EmbeddedZooKeeper, connect: Connect, request: pytest.FixtureRequest) -> str:
    """A znode of the test's own, made without the proxy."""
    return str(connect(server.hosts).create(f"/{request.node.name}-", sequence=True))


def test_requests_pass_and_are_counted(proxy: Proxy, root: str, connect: Connect) -> None:
    """Without faults a client notices nothing, and every request is in the counts."""
    client = connect(proxy.hosts)
    client.create(f"{root}/a", b"1")
    client.transaction().commit()
    assert client.get(f"{root}/a")[0] == b"1"
    assert client.get_children(root) == ["a"]
    counts = proxy.requests
    assert (counts["connect"], counts["create"], counts["multi"], counts["get_data"]) == (1, 1, 1, 1)


def test_a_cut_reply_leaves_the_request_carried_out(
    proxy: Proxy, server: EmbeddedZooKeeper, root: str, connect: Connect, eventually: Eventually
) -> None:
    """The client hears of a lost connection although the znode is there; later it connects again by itself."""
    client = connect(proxy.hosts)
    cut = proxy.cut_reply(op="create")
    with pytest.raises(ConnectionLoss):
        client.create(f"{root}/done")
    assert cut.wait(5)
    assert connect(server.hosts).exists(f"{root}/done")
    eventually(lambda: bool(client.connected))
    assert client.create(f"{root}/next") == f"{root}/next"


def test_a_cut_request_never_reaches_the_server(
    proxy: Proxy, server: EmbeddedZooKeeper, root: str, connect: Connect
) -> None:
    """The client hears the same, and the znode is not there."""
    client = connect(proxy.hosts)
    cut = proxy.cut_request(op="create")
    with pytest.raises(ConnectionLoss):
        client.create(f"{root}/lost")
    assert cut.wait(5)
    assert not connect(server.hosts).exists(f"{root}/lost")


def test_the_nth_request_of_a_kind_is_the_one_that_is_cut(
    proxy: Proxy, server: EmbeddedZooKeeper, root: str, connect: Connect
) -> None:
    """Requests before it are answered, those of another kind do not count, and those after it are lost with it."""
    client = connect(proxy.hosts)
    cut = proxy.cut_reply(n=3, op="set_data")
    results = [client.set_async(root, str(i).encode()) for i in range(1, 3)]
    client.exists(root)
    assert [result.get(timeout=5).version for result in results] == [1, 2]
    assert not cut.is_set()
    with pytest.raises(ConnectionLoss):
        client.set(root, b"3")
    assert cut.wait(5)
    assert connect(server.hosts).get(root)[0] == b"3"


def test_a_cut_connect_is_tried_again(proxy: Proxy, connect: Connect) -> None:
    """Even the reply that grants the session can be lost."""
    cut = proxy.cut_reply(op="connect")
    assert connect(proxy.hosts).connected
    assert cut.is_set()
    assert proxy.requests["connect"] == 2


def test_a_black_hole_swallows_and_keeps_connections_open(
    proxy: Proxy, root: str, connect: Connect, eventually: Eventually
) -> None:
    """Nothing comes back and nothing breaks, until it is healed and the client connects again."""
    client = connect(proxy.hosts, timeout=20.0)
    proxy.black_hole()
    answer = client.exists_async(root)
    with pytest.raises(KazooTimeoutError):
        answer.get(timeout=0.5)
    assert client.connected
    proxy.heal()
    with pytest.raises(ConnectionLoss):
        answer.get(timeout=5)
    eventually(lambda: bool(client.connected))
    assert client.exists(root)


def test_an_untouched_connection_survives_the_black_hole(proxy: Proxy, root: str, connect: Connect) -> None:
    """A connection that lost nothing carries on, with its session and without a break."""
    client = connect(proxy.hosts, timeout=60.0)
    proxy.black_hole()
    proxy.heal()
    assert client.exists(root)
    assert proxy.requests["connect"] == 1


def test_a_delay_is_latency_and_not_a_queue(proxy: Proxy, root: str, connect: Connect) -> None:
    """Each request takes twice the delay, and a hundred at once take hardly longer than one."""
    client = connect(proxy.hosts)
    proxy.delay(0.2)
    begin = time.monotonic()
    for answer in [client.exists_async(root) for _ in range(100)]:
        answer.get(timeout=10)
    taken = time.monotonic() - begin
    assert 0.4 <= taken < 4.0
    proxy.delay(0)


def test_refused_clients_connect_once_they_are_accepted(
    proxy: Proxy, root: str, connect: Connect, eventually: Eventually
) -> None:
    """New connections break at once while old ones go on."""
    old = connect(proxy.hosts)
    proxy.refuse()
    new = KazooClient(proxy.hosts)
    try:
        with pytest.raises(KazooTimeoutError):
            new.start(timeout=1)
        assert old.exists(root)
        new = KazooClient(proxy.hosts)
        started = new.start_async()
        proxy.accept()
        eventually(started.is_set)
        assert new.exists(root)
    finally:
        new.stop()
        new.close()


def test_drop_closes_what_is_open_and_sessions_survive(
    proxy: Proxy, connect: Connect, root: str, eventually: Eventually
) -> None:
    """A dropped client comes back with the session that it had."""
    client = connect(proxy.hosts)
    session = client.client_id
    lost = threading.Event()
    client.add_listener(lambda state: lost.set() if state == "SUSPENDED" else None)
    proxy.drop()
    assert lost.wait(5)
    eventually(lambda: bool(client.connected))
    assert client.exists(root)
    assert client.client_id == session


def test_a_chroot_and_several_servers_stay_in_place(server: EmbeddedZooKeeper) -> None:
    """Each server behind the proxy has its port, in order, and the chroot is kept."""
    with Proxy(f"{server.hosts},127.0.0.1:1/app") as proxy:
        first, second = proxy.hosts.removesuffix("/app").split(",")
        assert proxy.hosts.endswith("/app")
        assert first != second
        modes = [mode(host, int(port)) for host, _, port in (first.partition(":"), second.partition(":"))]
        assert modes == ["standalone", None]


def test_a_closed_proxy_leaves_no_thread_and_no_listener(server: EmbeddedZooKeeper, connect: Connect) -> None:
    """close() ends its thread and every connection, and may be called again."""
    proxy = Proxy(server.hosts).start()
    client = connect(proxy.hosts)
    lost = threading.Event()
    client.add_listener(lambda state: lost.set() if state == "SUSPENDED" else None)
    proxy.close()
    assert lost.wait(5)
    assert not any(thread.name == "zkms proxy" for thread in threading.enumerate())
    proxy.close()


def test_mistakes_in_a_cut_are_said_at_once(proxy: Proxy) -> None:
    """An operation that does not exist would never be cut, and nor would request number 0."""
    with pytest.raises(InvalidArgument, match=r"'transaction' is no operation of ZooKeeper: choose from .*multi"):
        proxy.cut_reply(op="transaction")
    with pytest.raises(InvalidArgument, match="counted from 1"):
        proxy.cut_request(n=0)


def test_two_cuts_of_one_request_take_one_each() -> None:
    """The oldest takes the request; the other takes the next one."""
    faults = Faults()
    older, newer = faults.cut(1, "multi", reply=True), faults.cut(1, None, reply=False)
    assert faults.take("ping") is None
    assert faults.take("multi") is older
    assert faults.take("exists") is newer
    assert faults.take("multi") is None


def test_a_trickle_brings_replies_in_pieces(proxy: Proxy, root: str, connect: Connect) -> None:
    """All of it arrives, and it takes its time."""
    client = connect(proxy.hosts)
    client.create(f"{root}/a", b"x" * 1000)
    proxy.trickle(200, 0.1)
    began = time.monotonic()
    assert client.get(f"{root}/a")[0] == b"x" * 1000
    assert time.monotonic() - began >= 0.5
    proxy.heal()


def test_a_proxy_that_stops_reading_carries_out_nothing_more(
    proxy: Proxy, server: EmbeddedZooKeeper, root: str, connect: Connect
) -> None:
    """Until it is healed: then what waits is carried out on the same connection."""
    client, direct = connect(proxy.hosts), connect(server.hosts)
    proxy.stop_reading()
    waiting = client.create_async(f"{root}/a")
    time.sleep(0.2)
    assert not direct.exists(f"{root}/a")
    proxy.heal()
    assert waiting.get(timeout=20) == f"{root}/a"
    assert proxy.requests["connect"] == 1
