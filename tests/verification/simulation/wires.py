"""Two ways to send the same bytes: to a real ZooKeeper over a socket, and to the simulated one."""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Protocol, Self

from verification.simulation.clockwork import World
from verification.simulation.ensemble import Connection, Ensemble

CLOSE = -11
_HEAD = struct.Struct(">iii")
_REPLY = struct.Struct(">iqi")
_HELLO = struct.Struct(">iqiqi16s?")
TIMEOUT_MS = 10_000


class Wire(Protocol):
    """One client's connection."""

    session: int

    def ask(self, code: int, raw: bytes) -> list[bytes]:
        """Send a request; all frames that came up to its answer, which is the last."""

    def close(self) -> None:
        """End the session, and return when it has ended."""

    def expire(self) -> None:
        """The same, but not by this client."""

    def again(self) -> Wire:
        """Another client's connection, with a session of its own."""


class RealWire:
    """A connection to a real server."""

    def __init__(self, hosts: str, known: tuple[int, bytes] = (0, bytes(16))) -> None:
        self._hosts = hosts
        host, port = hosts.split(",")[0].split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._xid = 0
        self._send(_HELLO.pack(0, 0, TIMEOUT_MS, known[0], 16, known[1], False))
        self.session, _, self._password = struct.unpack_from(">qi16s", self._receive(), 8)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._socket.close()

    def ask(self, code: int, raw: bytes) -> list[bytes]:
        """As of Wire."""
        self._xid += 1
        self._send(struct.pack(">ii", self._xid, code) + raw)
        frames: list[bytes] = []
        while not frames or _REPLY.unpack_from(frames[-1])[0] != self._xid:
            frames.append(self._receive())
        return frames

    def close(self) -> None:
        """As of Wire: ZooKeeper closes the connection when that is done."""
        self._send(struct.pack(">ii", self._xid + 1, CLOSE))
        while self._socket.recv(4096):
            pass
        self._socket.close()

    def expire(self) -> None:
        """As of Wire: another client that has the session closes it."""
        with RealWire(self._hosts, (self.session, self._password)) as thief:
            assert thief.session == self.session
            thief.close()
        self._socket.close()

    def again(self) -> RealWire:
        """As of Wire."""
        return RealWire(self._hosts)

    def _send(self, frame: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def _receive(self) -> bytes:
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, count: int) -> bytes:
        parts = b""
        while len(parts) < count:
            got = self._socket.recv(count - len(parts))
            if not got:
                raise ConnectionError("ZooKeeper has closed the connection")
            parts += got
        return parts


class SimulatedWire:
    """A connection to the model."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._world: World = ensemble.world
        self._frames: deque[bytes] = deque()
        connection = ensemble.connect(None, TIMEOUT_MS / 1000, 0, self._frames.append, lambda: None)
        assert connection is not None
        self._connection: Connection = connection
        self.session = connection.session.number
        self._xid = 0

    def ask(self, code: int, raw: bytes) -> list[bytes]:
        """As of Wire."""
        self._xid += 1
        self._connection.send(_HEAD.pack(len(raw) + 8, self._xid, code) + raw)
        frames: list[bytes] = []

        def answered() -> bool:
            while self._frames:
                frames.append(self._frames.popleft())
            return bool(frames) and _REPLY.unpack_from(frames[-1])[0] == self._xid

        assert self._world.run(answered, self._world.now + 60)
        return frames

    def close(self) -> None:
        """As of Wire."""
        ensemble, leader = self._ensemble, self._ensemble.leader
        ensemble.end(self._connection.session)
        assert not self._connection.open
        known = self._world.run(lambda: ensemble.replicas[0].applied == len(leader.log), self._world.now + 60)
        assert known, "the one server does not know what was decided"

    expire = close

    def again(self) -> SimulatedWire:
        """As of Wire."""
        return SimulatedWire(self._ensemble)
