"""Replaces kazoo's client: connects to the simulated ensemble, and transfers real bytes both ways.

`SimulatedConnection` is the real one without sockets: requests and replies are encoded as on the wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo.protocol.states import KazooState, KeeperState

from verification.simulation.clockwork import Task, here, running
from verification.simulation.ensemble import Connection, Ensemble
from verification.simulation.primitives import Thread
from zkms.config import Config
from zkms.errors import ZkmsError
from zkms.zookeeper.connection import Connection as RealConnection
from zkms.zookeeper.kazoo_client import GOODBYE

RETRY = 0.05
LONGEST_RETRY = 2.0


class Broken(Exception):
    """The connection is broken."""


class SimulatedConnection(RealConnection):
    """The traffic of one client, without sockets."""

    def __init__(self) -> None:
        super().__init__()
        self._asleep = False
        self.task: Task | None = None
        """The task that serves the connection."""

    def attach(self, client: Any) -> None:
        """Carry this client's traffic."""
        self._client = client
        self._chroot = 0

    def _ring(self) -> None:
        if self._asleep:
            self._asleep = False
            if self.task is not None:
                here().wake(self.task)

    def _looked(self) -> float:
        return here().now if self._asleep else 0.0

    def closed(self, error: ZkmsError | None = None) -> None:
        """Like the real one, but in any order that threads could call it."""
        here().pause()
        super().closed(error)

    def serve(self, client: Client, connection: Connection) -> None:
        """Work until the connection breaks, or the client is to stop."""
        world = here()
        pinged = world.now
        read_timeout = connection.session.timeout * 2 / 3
        while True:
            self._run_steps()
            raw = self._gather()
            if raw:
                connection.send(raw)
            while client.arrived:
                self._heard_at = world.now
                frame = client.arrived.popleft()
                if not self._take_frame(memoryview(frame)):
                    raise AssertionError("the simulated server has answered what was not asked")
            if client.stopping:
                return
            if client.broken:
                raise Broken("connection broken")
            if world.now - max(self._heard_at, client.since) > read_timeout:
                raise Broken("no answer to a ping")
            if self._steps or self._unsent:
                world.pause()
                continue
            self._asleep = True
            woken = world.wait(max(0.0, pinged + connection.session.timeout / 3 - world.now))
            self._asleep = False
            if not woken:
                pinged = world.now
                connection.send(b"")


class Client:
    """Replaces the client of zkms.zookeeper.kazoo_client."""

    chroot = ""
    awaits_reply = False

    def __init__(
        self,
        config: Config,
        client_id: tuple[int, bytes] | None,
        connection: SimulatedConnection,
        *,
        seen: Callable[[], int],
        granted: Callable[[float], None],
    ) -> None:
        self.client_id = client_id
        self.client_state = KeeperState.CONNECTING
        self.last_zxid = 0
        self.connected = False
        self.ended = False
        self.failure: Exception | None = None
        self.arrived: deque[bytes] = deque()
        self.broken = False
        self.stopping = False
        self.since = 0.0
        self.xid = 0
        self._ensemble: Ensemble = here().ensemble
        self._config = config
        self._connection = connection
        self._seen = seen
        self._granted = granted
        self._listeners: list[Callable[[str], None]] = []
        self._wire: Connection | None = None
        self._thread = Thread(target=self._run, name="zkms-kazoo", daemon=True)

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """As kazoo's."""
        self._listeners.append(listener)

    def start_async(self) -> None:
        """As kazoo's."""
        running().process.ended.append(self._killed)
        self._thread.start()

    def drop(self) -> None:
        """As the real one's."""
        if self._wire is not None:
            self._wire.cut(arrives=here().random.random() < 0.5)

    def heard(self) -> None:
        """Do nothing: there are no pings here."""

    def dispose(self) -> None:
        """End the session, if the server can be reached."""
        self.stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join(GOODBYE)

    def _killed(self) -> None:
        if self._wire is not None:
            self._wire.cut(arrives=self._ensemble.world.random.random() < 0.5)

    def _wake(self) -> None:
        if self._thread._task is not None:
            here().wake(self._thread._task)

    def _deliver(self, frame: bytes) -> None:
        self.arrived.append(frame)
        self._wake()

    def _broke(self) -> None:
        self.broken = True
        self._wake()

    def _run(self) -> None:
        self._connection.task = self._thread._task
        delay = RETRY
        while not self.stopping:
            wire = self._connect()
            if wire is None:
                here().wait(delay * (0.6 + 0.8 * here().random.random()))
                delay = min(LONGEST_RETRY, delay * 2)
                continue
            delay = RETRY
            try:
                self._connection.serve(self, wire)
            except Broken:
                self._lost(KazooState.SUSPENDED)
        if self.connected and self._wire is not None and not self.broken:
            self._ensemble.world.call_in(self._ensemble.latency(), self._ensemble.end, self._wire.session)
            here().wait(3 * self._ensemble.latency())
        self.connected = False
        self.ended = True

    def _connect(self) -> Connection | None:
        """Return a connection with a new or resumed session."""
        here().wait(2 * self._ensemble.latency())
        self.last_zxid = self._seen()
        self._connection.begin()
        self.arrived.clear()
        self.broken = False
        wire = self._ensemble.connect(
            self.client_id, self._config.session_timeout, self.last_zxid, self._deliver, self._broke
        )
        if wire is None:
            return None
        if wire.session.ended:
            self.client_id = None
            self._lost(KazooState.LOST)
            return None
        self._wire = wire
        self.since = here().now
        self.client_id = (wire.session.number, wire.session.password)
        self.client_state = KeeperState.CONNECTED
        self.connected = True
        self._granted(wire.session.timeout * 2 / 3)
        return wire

    def _lost(self, state: str) -> None:
        self.connected = False
        self.client_state = KeeperState.CONNECTING
        if self._wire is not None:
            self._wire.cut(arrives=here().random.random() < 0.5)
        for listener in self._listeners:
            listener(state)
