"""What an embedded and a containerised ZooKeeper have in common: nodes killed, paused, restarted and healed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from tests.support.buses import Eventually
from zkms.server.server import Server
from zkms.testing import ServerError

Connect = Callable[..., KazooClient]
CanWrite = Callable[[str, str], bool]


def modes(server: Server, nodes: int) -> list[str]:
    """Return what each node says it is, sorted."""
    return sorted(line for i in range(nodes) for line in server.srvr(i).splitlines() if line.startswith("Mode"))


def test_one_server_serves(zookeeper: Server, zookeeper_root: str, connect: Connect) -> None:
    """The `zookeeper` fixture is a standalone server that clients can use at once."""
    assert modes(zookeeper, 1) == ["Mode: standalone"]
    assert zookeeper.leader() == 0
    connect(zookeeper.hosts).create(zookeeper_root)


def test_a_restart_keeps_address_and_data(
    zookeeper: Server, zookeeper_root: str, connect: Connect, eventually: Eventually
) -> None:
    """A killed node comes back where it was, with what it knew, and clients find it again."""
    hosts, client = zookeeper.hosts, connect(zookeeper.hosts)
    client.create(zookeeper_root, b"kept")
    zookeeper.kill(0)
    assert zookeeper.leader() is None
    zookeeper.restart(0)
    assert zookeeper.hosts == hosts
    eventually(lambda: bool(client.connected))
    assert connect(hosts).get(zookeeper_root)[0] == b"kept"


def test_a_paused_server_is_silent_until_it_is_resumed(zookeeper: Server, eventually: Eventually) -> None:
    """Pausing leaves the port open and unanswered; resuming brings the answers back."""
    zookeeper.pause(0)
    try:
        with pytest.raises(TimeoutError):
            zookeeper.srvr(0)
        assert zookeeper.leader() is None
    finally:
        zookeeper.resume(0)
    eventually(lambda: zookeeper.leader() == 0)


def test_a_dead_node_cannot_be_paused(zookeeper: Server) -> None:
    """The error says so in one sentence, and heal() brings the node back."""
    zookeeper.kill(0)
    with pytest.raises(ServerError, match=r"node 0"):
        zookeeper.pause(0)
    zookeeper.heal()
    assert zookeeper.leader() == 0


def test_three_nodes_form_an_ensemble(zookeeper_ensemble: Server, zookeeper_root: str, connect: Connect) -> None:
    """One leads, two follow, and what one node was told the others know."""
    assert modes(zookeeper_ensemble, 3) == ["Mode: follower", "Mode: follower", "Mode: leader"]
    first, second, third = zookeeper_ensemble.hosts.split(",")
    connect(first).create(zookeeper_root, b"shared")
    for host in (second, third):
        client = connect(host)
        client.sync(zookeeper_root)
        assert client.get(zookeeper_root)[0] == b"shared"


def test_writes_resume_after_the_leader_is_killed(
    zookeeper_ensemble: Server, zookeeper_root: str, eventually: Eventually, can_write: CanWrite
) -> None:
    """The other two elect a new leader, and the old one comes back as a follower."""
    old = zookeeper_ensemble.leader()
    assert old is not None
    zookeeper_ensemble.kill(old)
    eventually(lambda: zookeeper_ensemble.leader() not in (None, old))
    eventually(lambda: can_write(zookeeper_ensemble.hosts, zookeeper_root))
    zookeeper_ensemble.restart(old)
    assert "Mode: follower" in zookeeper_ensemble.srvr(old)


def test_writes_resume_while_the_leader_is_paused(
    zookeeper_ensemble: Server, zookeeper_root: str, eventually: Eventually, can_write: CanWrite
) -> None:
    """A leader that hangs is replaced, and finds its place again when it runs on."""
    old = zookeeper_ensemble.leader()
    assert old is not None
    zookeeper_ensemble.pause(old)
    eventually(lambda: can_write(zookeeper_ensemble.hosts, zookeeper_root))
    assert zookeeper_ensemble.leader() not in (None, old)
    zookeeper_ensemble.resume(old)
    eventually(lambda: modes(zookeeper_ensemble, 3) == ["Mode: follower", "Mode: follower", "Mode: leader"])


def test_without_a_majority_nothing_is_written(
    zookeeper_ensemble: Server, zookeeper_root: str, can_write: CanWrite
) -> None:
    """One node of three does not serve; heal() makes the ensemble whole again."""
    zookeeper_ensemble.kill(0)
    zookeeper_ensemble.pause(1)
    assert not can_write(zookeeper_ensemble.hosts, zookeeper_root)
    zookeeper_ensemble.heal()
    assert can_write(zookeeper_ensemble.hosts, zookeeper_root)


@pytest.mark.parametrize("test", ["first", "second"])
def test_the_ensemble_is_healthy_at_the_start_of_a_test(zookeeper_ensemble: Server, test: str) -> None:
    """What the first run of this test breaks, the second finds mended."""
    assert len(modes(zookeeper_ensemble, 3)) == 3
    zookeeper_ensemble.kill(2)
    zookeeper_ensemble.pause(1)
