"""What every ZooKeeper for tests can do, wherever it runs."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

from zkms.errors import InvalidArgument
from zkms.server.words import ask, mode
from zkms.server.zoocfg import Setting


class Server(ABC):
    """A ZooKeeper of one or more nodes, counted from 0, that tests can disturb."""

    def __init__(self, nodes: int, tick_time: int, config: Mapping[str, Setting] | None, timeout: float) -> None:
        if nodes < 1 or nodes % 2 == 0:
            raise InvalidArgument(f"an ensemble has an odd number of nodes, not {nodes}")
        self._count = nodes
        self._tick_time = tick_time
        self._config = dict(config or {})
        self._timeout = timeout
        self._owner = os.getpid()

    @property
    @abstractmethod
    def addresses(self) -> list[tuple[str, int]]:
        """Where clients reach each node; ServerError if it is not running."""

    @abstractmethod
    def start(self) -> Self:
        """Start every node and return when all of them serve clients; ServerError says why they do not."""

    @abstractmethod
    def close(self) -> None:
        """Stop all nodes and remove what they left."""

    @abstractmethod
    def kill(self, i: int) -> None:
        """Kill node `i` without warning."""

    @abstractmethod
    def pause(self, i: int) -> None:
        """Freeze node `i`: connections stay open and nothing answers."""

    @abstractmethod
    def resume(self, i: int) -> None:
        """Let a paused node run on."""

    @abstractmethod
    def restart(self, i: int, *, wait: bool = True) -> None:
        """Start node `i` again on its port and data, and return when it serves (at once with `wait=False`)."""

    @abstractmethod
    def heal(self) -> None:
        """Undo every fault, and return when all nodes serve."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def hosts(self) -> str:
        """Where clients connect: "host:port,host:port"."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    @property
    def ports(self) -> list[int]:
        """The client port of each node; it stays the same over restarts."""
        return [port for _, port in self.addresses]

    def leader(self) -> int | None:
        """Return which node leads (a standalone server leads itself), or None while none does."""
        modes = [mode(host, port, timeout=1.0) for host, port in self.addresses]
        return next((i for i, found in enumerate(modes) if found in ("leader", "standalone")), None)

    def srvr(self, i: int) -> str:
        """Return what node `i` answers to the four-letter word `srvr`; OSError if it does not answer."""
        return ask(*self.addresses[i])
