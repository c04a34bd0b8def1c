"""Servers that are killed, restarted, paused, full, or have the wrong time."""

from __future__ import annotations

from verification.faults.disks import fill
from verification.faults.ensemble import NODES
from verification.faults.nemesis import Nemesis
from verification.faults.stage import Stage

HOUR = 3600


class LeaderKilled(Nemesis):
    """The server that leads is killed, and started again."""

    name = "leader-killed"
    about = "SIGKILL of the leader; started again"

    def begin(self, stage: Stage) -> None:
        """Kill it."""
        stage.ensemble.server.kill(stage.ensemble.leader())


class FollowerKilled(Nemesis):
    """A server that follows is killed, and started again."""

    name = "follower-killed"
    about = "SIGKILL of a follower; started again"

    def begin(self, stage: Stage) -> None:
        """Kill one of the two."""
        stage.ensemble.server.kill(_follower(stage))


class AllRestarted(Nemesis):
    """All servers are killed at once and started again at once."""

    name = "all-restarted"
    about = "SIGKILL of all three, started again at once"

    def begin(self, stage: Stage) -> None:
        """Kill them all, then start them all."""
        for node in range(NODES):
            stage.ensemble.server.kill(node)
        for node in range(NODES):
            stage.ensemble.server.restart(node, wait=False)


class LeaderPaused(Nemesis):
    """The leader is paused, and resumed."""

    name = "leader-paused"
    about = "SIGSTOP of the leader, then SIGCONT"

    def begin(self, stage: Stage) -> None:
        """Stop it."""
        stage.ensemble.server.pause(stage.ensemble.leader())


class FollowerPaused(Nemesis):
    """A follower is paused with its clients' connections open, and resumed."""

    name = "follower-paused"
    about = "SIGSTOP of a follower, then SIGCONT"

    def begin(self, stage: Stage) -> None:
        """Stop one of the two."""
        stage.ensemble.server.pause(_follower(stage))


class DiskFull(Nemesis):
    """The leader cannot write its log: it gives up, and is started again when there is room."""

    name = "disk-full"
    about = "no byte left on the leader's disk; room again, and started again if it gave up"
    kit = "disks"
    embedded_only = True

    def begin(self, stage: Stage) -> None:
        """Fill the disk."""
        fill(stage.ensemble.disks[stage.ensemble.leader()])


class ServerClockJumped(Nemesis):
    """The leader's wall clock goes an hour ahead, and back."""

    name = "server-clock"
    about = "the leader's wall clock jumps an hour ahead, and back (libfaketime)"
    kit = "clocks"
    embedded_only = True

    def begin(self, stage: Stage) -> None:
        """Jump ahead."""
        stage.ensemble.clocks[stage.ensemble.leader()].jump(HOUR)


def _follower(stage: Stage) -> int:
    leader = stage.ensemble.leader()
    return stage.chance.choice([node for node in range(NODES) if node != leader])
