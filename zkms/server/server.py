"""What every ZooKeeper for tests can do, wherever it runs."""

from __future__ import annotations

from typing import Protocol


class Server(Protocol):
    """A ZooKeeper of one or more nodes, counted from 0, that tests can disturb."""

    @property
    def hosts(self) -> str:
        """Where clients connect: "host:port,host:port"."""

    def close(self) -> None:
        """Stop all nodes and remove what they left."""

    def kill(self, i: int) -> None:
        """Kill node `i` without warning."""

    def pause(self, i: int) -> None:
        """Freeze node `i`: connections stay open and nothing answers."""

    def resume(self, i: int) -> None:
        """Let a paused node run on."""

    def restart(self, i: int, *, wait: bool = True) -> None:
        """Start node `i` again on its port and data, and return when it serves (at once with `wait=False`)."""

    def heal(self) -> None:
        """Undo every fault, and return when all nodes serve."""

    def leader(self) -> int | None:
        """Return which node leads (a standalone server leads itself), or None while none does."""

    def srvr(self, i: int) -> str:
        """Return what node `i` answers to the four-letter word `srvr`; OSError if it does not answer."""
