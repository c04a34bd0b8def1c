"""Three servers equipped for faults: connections that can be cut, clocks that jump, disks that can be filled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from verification.faults.clocks import Clock
from verification.faults.disks import drain, small_disks
from verification.faults.switchboard import Switchboard
from zkms.server.errors import ServerError
from zkms.server.server import Server
from zkms.testing import EmbeddedZooKeeper, ZooKeeperContainer

NODES = 3
Where = Literal["embedded", "containers"]
Kit = Literal["plain", "wires", "clocks", "disks"]
_ELECTED = 60.0


@dataclass
class Ensemble:
    """The servers, and what they were equipped with."""

    server: Server
    wires: Switchboard | None = None
    clocks: list[Clock] = field(default_factory=list)
    disks: list[Path] = field(default_factory=list)

    def leader(self) -> int:
        """Wait for a leader, and return its number."""
        deadline = time.monotonic() + _ELECTED
        while (found := self.server.leader()) is None:
            if time.monotonic() > deadline:
                raise ServerError(f"no server leads after {_ELECTED:g} s")
            time.sleep(0.05)
        return found

    def heal(self) -> None:
        """Undo every fault, and return when all servers serve."""
        if self.wires is not None:
            self.wires.heal()
        for clock in self.clocks:
            clock.jump(0)
        for disk in self.disks:
            drain(disk)
        self.server.heal()


@contextmanager
def ensemble(where: Where, kit: Kit, directory: Path) -> Iterator[Ensemble]:
    """Three servers that run until the block ends, with their data and logs in a directory."""
    if where == "containers":
        if kit in ("clocks", "disks"):
            raise ServerError("clocks and disks are changed in embedded servers only")
        with ZooKeeperContainer(NODES) as containers:
            yield Ensemble(containers)
        return
    with ExitStack() as stack:
        log, data = directory / "zookeeper.log", directory / "data"
        if kit == "wires":
            board = stack.enter_context(Switchboard(NODES))
            server = stack.enter_context(EmbeddedZooKeeper(NODES, log=log, wrap=board.wrap))
            yield Ensemble(server, wires=board)
        elif kit == "clocks":
            clocks = [Clock(directory / f"clock-{number}") for number in range(NODES)]
            server = stack.enter_context(
                EmbeddedZooKeeper(NODES, log=log, wrap=lambda node, command: clocks[node].wrap(command))
            )
            yield Ensemble(server, clocks=clocks)
        elif kit == "disks":
            disks = stack.enter_context(small_disks(data, NODES))
            server = stack.enter_context(EmbeddedZooKeeper(NODES, log=log, data=data))
            yield Ensemble(server, disks=disks)
        else:
            yield Ensemble(stack.enter_context(EmbeddedZooKeeper(NODES, log=log)))
