"""A real ZooKeeper in containers, where nodes can also be cut off from the network.

    with ZooKeeperContainer(3) as zookeeper:
        zkms.connect(zookeeper.hosts)

The image is the official one unless another is given; where it cannot be pulled, one of our own is built.
testcontainers' reaper removes containers even after kill -9; where its image cannot be had either, such containers stay
behind, with the label `zkms.testing`.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from zkms.server.errors import ServerError
from zkms.server.node import reason
from zkms.server.ports import free_ports
from zkms.server.server import Server
from zkms.server.words import await_serving
from zkms.server.zoocfg import Setting, zoo_cfg
from zkms.testing.daemon import docker_errors
from zkms.testing.image import CLIENT_PORT, CONFIG_FILE, DATA_DIRECTORY, find_image

if TYPE_CHECKING:
    from docker.models.networks import Network as DockerNetwork
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.network import Network

_ATTEMPTS = 5  # to find host ports that nobody takes between our look and Docker's bind
_LABELS = {"zkms.testing": "zookeeper"}

# A node that was cut off comes back at another address: Java would remember the old one, or its absence, for long.
_JAVA_OPTIONS = "-Dsun.net.inetaddr.ttl=1 -Dsun.net.inetaddr.negative.ttl=0"


class ZooKeeperContainer(Server):
    """One ZooKeeper server, or an ensemble of them, in containers that are removed at the end."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        image: str | None = None,
        tick_time: int = 500,
        config: Mapping[str, Setting] | None = None,
        timeout: float = 120.0,
    ) -> None:
        """Describe the servers; `start()` or `with` runs them.

        `image` or ZKMS_ZOOKEEPER_IMAGE names an image that reads /conf/zoo.cfg as the official one does. `config` adds
        to or replaces lines of zoo.cfg.
        """
        super().__init__(nodes, tick_time, config, timeout)
        self._image = image or os.environ.get("ZKMS_ZOOKEEPER_IMAGE")
        self._network: Network | None = None
        self._nodes: list[DockerContainer] = []
        self._addresses: list[tuple[str, int]] = []

    def start(self) -> Self:
        """Start every container and return when all of them serve clients; ServerError says why they do not."""
        if self._nodes:
            return self
        image = find_image(self._image)
        from docker.errors import DockerException
        from testcontainers.core.network import Network

        self._owner = os.getpid()
        atexit.register(self.close)
        try:
            self._network = Network(docker_network_kw={"labels": _LABELS}).create()
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._launch(image)
                    break
                except DockerException as error:
                    self._remove_nodes()
                    if "address already in use" not in str(error) and "already allocated" not in str(error):
                        raise ServerError(f"Docker cannot run {image}: {error}") from error
                    if attempt == _ATTEMPTS:
                        raise ServerError(f"Docker found no free host port for {image}: {error}") from error
            await_serving(self._addresses, self._timeout, self._check)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Remove every container and their network."""
        if os.getpid() != self._owner:
            return  # a fork of ours: the containers are not its to remove
        atexit.unregister(self.close)
        self._remove_nodes()
        if self._network is not None:
            self._network.remove()
            self._network = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where clients reach each node, from this process."""
        self._running()
        return self._addresses

    def kill(self, i: int) -> None:
        """Kill node `i` with SIGKILL, and return when it is gone."""
        with docker_errors(f"kill node {i}"):
            container = self._container(i)
            container.kill()
            container.wait()

    def pause(self, i: int) -> None:
        """Freeze node `i`: its connections stay open and nothing answers."""
        with docker_errors(f"pause node {i}"):
            self._container(i).pause()

    def resume(self, i: int) -> None:
        """Let a paused node run on."""
        with docker_errors(f"resume node {i}"):
            self._container(i).unpause()

    def disconnect(self, i: int) -> None:
        """Cut node `i` off from the others and from clients: Docker's published port goes through the same network."""
        with docker_errors(f"disconnect node {i}"):
            self._docker_network().disconnect(self._container(i))

    def reconnect(self, i: int) -> None:
        """Undo `disconnect()`; the node finds its ensemble again by itself, which takes a moment."""
        with docker_errors(f"reconnect node {i}"):
            self._docker_network().connect(self._container(i), aliases=[_alias(i)])

    def restart(self, i: int, *, wait: bool = True) -> None:
        """Start node `i` again on its port and data, and return when it serves (at once with `wait=False`)."""
        with docker_errors(f"restart node {i}"):
            container = self._container(i)
            if container.status == "paused":
                container.unpause()
            container.restart(timeout=5)
        if wait:
            await_serving([self._addresses[i]], self._timeout, self._check)

    def heal(self) -> None:
        """Resume what is paused, reconnect what is cut off, start what is dead, and return when all nodes serve."""
        with docker_errors("heal the ensemble"):
            name = self._docker_network().name
            for i in range(self._count):
                container = self._container(i)
                if container.status == "paused":
                    container.unpause()
                if name not in container.attrs["NetworkSettings"]["Networks"]:
                    self.reconnect(i)
                container.start()  # does nothing to one that runs
        await_serving(self._addresses, self._timeout, self._check)

    def _launch(self, image: str) -> None:
        """Create and start a container per node, each with its configuration in place before it runs."""
        from testcontainers.core.container import DockerContainer

        servers = {i + 1: f"{_alias(i)}:2888:3888" for i in range(self._count)}
        config: dict[str, Setting] = {"quorumListenOnAllIPs": True, **self._config}
        text = zoo_cfg(
            data=DATA_DIRECTORY,
            client_port=CLIENT_PORT,
            tick_time=self._tick_time,
            servers=servers if self._count > 1 else None,
            extra=config,
        )
        for i, port in enumerate(free_ports(self._count)):
            node = DockerContainer(image, env={"JAVA_TOOL_OPTIONS": _JAVA_OPTIONS}, network=self._network)
            node.image = image  # find_image() has the full name already, with testcontainers' prefix where there is one
            node.with_network_aliases(_alias(i)).with_kwargs(labels=_LABELS)
            # A host port of our choice: one that Docker chooses changes when the container starts again.
            node.with_bind_ports(CLIENT_PORT, port)
            node.with_copy_into_container(text.encode(), CONFIG_FILE)
            node.with_copy_into_container(f"{i + 1}\n".encode(), f"{DATA_DIRECTORY}/myid")
            self._nodes.append(node)
            node.start()
            host = node.get_container_host_ip()
            self._addresses.append(("127.0.0.1" if host == "localhost" else host, node.get_exposed_port(CLIENT_PORT)))

    def _check(self) -> None:
        """Raise what a container said last if it has ended."""
        for i, node in enumerate(self._nodes):
            container = self._container(i)
            if container.status == "exited":
                output = b"".join(node.get_logs()).decode("utf-8", errors="replace")
                raise ServerError(f"the container of node {i} has ended: {reason(output)}")

    def _running(self) -> list[DockerContainer]:
        if not self._nodes:
            raise ServerError("this ZooKeeper is not running: call start() first")
        return self._nodes

    # docker's SDK has no types: what it returns is Any to the type checker.
    def _container(self, i: int) -> Any:
        container = self._running()[i].get_wrapped_container()
        container.reload()
        return container

    def _docker_network(self) -> DockerNetwork:
        node, network = self._running()[0], self._network
        if network is None:
            raise ServerError("this ZooKeeper is not running: call start() first")
        return node.get_docker_client().client.networks.get(network.name)

    def _remove_nodes(self) -> None:
        nodes, self._nodes, self._addresses = self._nodes, [], []
        for node in nodes:
            node.stop()


def _alias(i: int) -> str:
    return f"zookeeper-{i + 1}"
