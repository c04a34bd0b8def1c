"""The containerised ZooKeeper: its image, its network, and what it says where Docker cannot help."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from zkms.errors import InvalidArgument
from zkms.server.words import mode
from zkms.testing import ServerError, ZooKeeperContainer, daemon, image

pytestmark = [pytest.mark.containers, pytest.mark.usefixtures("docker_needed")]


@pytest.fixture(scope="module")
def ensemble(docker_needed: None) -> Iterator[ZooKeeperContainer]:
    """Three containers for the tests of this file."""
    with ZooKeeperContainer(3) as zookeeper:
        yield zookeeper


def followers(zookeeper: ZooKeeperContainer) -> list[int]:
    """Return the nodes that follow."""
    return [i for i in range(3) if "Mode: follower" in zookeeper.srvr(i)]


def test_a_follower_cut_off_from_the_network_leaves_the_majority_writing(
    ensemble: ZooKeeperContainer, can_write: Callable[[str, str], bool], connect: Callable[..., KazooClient]
) -> None:
    """It answers nobody while it is cut off, and has caught up when it is back."""
    ensemble.heal()
    lost = followers(ensemble)[0]
    ensemble.disconnect(lost)
    others = ",".join(host for i, host in enumerate(ensemble.hosts.split(",")) if i != lost)
    assert can_write(others, "/while-cut-off")
    host, port = ensemble.hosts.split(",")[lost].split(":")
    assert mode(host, int(port)) is None
    ensemble.reconnect(lost)
    ensemble.heal()
    client = connect(ensemble.hosts.split(",")[lost])
    client.sync("/while-cut-off")
    assert client.exists("/while-cut-off")


def test_a_leader_cut_off_from_the_network_is_replaced(
    ensemble: ZooKeeperContainer, can_write: Callable[[str, str], bool], eventually: Callable[..., None]
) -> None:
    """The majority elects another; the old leader steps down and follows when it is back."""
    ensemble.heal()
    old = ensemble.leader()
    assert old is not None
    ensemble.disconnect(old)
    eventually(lambda: can_write(ensemble.hosts, "/without-the-leader"))
    assert ensemble.leader() not in (None, old)
    ensemble.reconnect(old)
    eventually(lambda: old in followers(ensemble))


def test_what_docker_refuses_is_one_sentence(ensemble: ZooKeeperContainer) -> None:
    """A fault that cannot be done names the node and Docker's reason."""
    ensemble.heal()
    with pytest.raises(ServerError, match=r"Docker cannot resume node 1: .*not paused"):
        ensemble.resume(1)


def test_our_own_image_is_built_once_and_serves(docker_needed: None, connect: Callable[..., KazooClient]) -> None:
    """Without a registry the image comes from the package index, and the next build finds it there."""
    client = daemon.connect()
    try:
        name = image.build_image(client)
        built = client.images.get(name).id
        assert image.build_image(client) == name
        assert client.images.get(name).id == built
    finally:
        client.close()
    with ZooKeeperContainer(image=name, config={"maxSessionTimeout": 7000}) as zookeeper:
        assert "Mode: standalone" in zookeeper.srvr(0)
        assert connect(zookeeper.hosts).create("/served") == "/served"


def test_an_image_that_cannot_be_had_is_named(docker_needed: None) -> None:
    """Who asks for an image gets that one or an error, not another."""
    with pytest.raises(ServerError, match=r"the image zkms-none:0 is neither here nor can it be pulled"):
        ZooKeeperContainer(image="zkms-none:0").start()


def test_a_server_that_dies_at_the_start_is_quoted(docker_needed: None) -> None:
    """The reason comes from the container's output, and the container is removed."""
    with pytest.raises(ServerError, match=r"NumberFormatException|Invalid config"):
        ZooKeeperContainer(config={"tickTime": "x"}).start()


def test_containers_and_networks_are_removed_when_the_owner_just_ends(docker_needed: None) -> None:
    """A program that forgets close() leaves nothing in Docker."""
    program = """
from zkms.testing import ZooKeeperContainer
zookeeper = ZooKeeperContainer().start()
print(zookeeper._network.name, zookeeper._nodes[0].get_container_id())
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    network, container = done.stdout.split()
    client = daemon.connect()
    try:
        assert network not in [found.name for found in client.networks.list()]
        assert container not in [found.id for found in client.containers.list(all=True)]
    finally:
        client.close()


@pytest.mark.parametrize("nodes", [0, 2])
def test_an_even_ensemble_is_refused(nodes: int) -> None:
    """An even number of servers is a mistake, said at once."""
    with pytest.raises(InvalidArgument, match="odd number"):
        ZooKeeperContainer(nodes)


def test_a_daemon_that_does_not_answer_is_a_reason() -> None:
    """Where nothing listens, docker_answers() says so and a start says the same."""
    program = """
from zkms.testing import ServerError, ZooKeeperContainer
from zkms.testing.daemon import docker_answers
print(docker_answers())
try:
    ZooKeeperContainer().start()
except ServerError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "DOCKER_HOST": "unix:///nowhere/docker.sock"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    reason, refusal = done.stdout.splitlines()
    assert reason.startswith("Docker does not answer: ")
    assert refusal == reason
