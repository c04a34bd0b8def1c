"""Two ways to send the same bytes: to a real ZooKeeper over a socket, and to the simulated one."""

from __future__ import annotations

import socket
import struct
from collections import deque
from typing import Protocol, Self

from simulation.clockwork import World
from simulation.ensemble import Connection, Ensemble

_HEAD = struct.Struct(">iii")
_REPLY = struct.Struct(">iqi")
_HELLO = struct.Struct(">iqiqi16s?")
TIMEOUT_MS = 10_000


class Wire(Protocol):
    """One client's connection."""

    def ask(self, code: int, raw: bytes) -> list[bytes]:
        """Send a request; all frames that came up to its answer, which is the last."""


class RealWire:
    """A connection to a real server."""

    def __init__(self, hosts: str) -> None:
        host, port = hosts.split(",")[0].split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._xid = 0
        self._send(_HELLO.pack(0, 0, TIMEOUT_MS, 0, 16, bytes(16), False))
        (self.session,) = struct.unpack_from(">q", self._receive(), 8)

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
