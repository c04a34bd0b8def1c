"""Servers that cannot hear each other, both ways or one way.

Embedded servers: the switchboard drops what they say to each other, and clients reach them all as before, those on the
wrong side included. Containers: Docker disconnects the server from its network, and so from its clients as well.
"""

from __future__ import annotations

from verification.faults.ensemble import NODES
from verification.faults.nemesis import Nemesis
from verification.faults.stage import Stage
from zkms.testing import ZooKeeperContainer


class _Partition(Nemesis):
    kit = "wires"

    def cut_off(self, stage: Stage, node: int) -> None:
        """One server on one side, two on the other."""
        server, wires = stage.ensemble.server, stage.ensemble.wires
        if wires is not None:
            wires.isolate(node)
        elif isinstance(server, ZooKeeperContainer):
            server.disconnect(node)


class FollowerCutOff(_Partition):
    """The smaller side has no leader: its clients have to reconnect elsewhere."""

    name = "minority-partition"
    about = "a follower cut off from the two others"

    def begin(self, stage: Stage) -> None:
        """Cut one of the two off."""
        leader = stage.ensemble.leader()
        self.cut_off(stage, stage.chance.choice([node for node in range(NODES) if node != leader]))


class LeaderCutOff(_Partition):
    """The smaller side has the leader, which believes for a while that it leads; the others choose a new one."""

    name = "majority-partition"
    about = "the leader cut off from both followers"

    def begin(self, stage: Stage) -> None:
        """Cut it off."""
        self.cut_off(stage, stage.ensemble.leader())


class LeaderDeaf(Nemesis):
    """The leader is heard by its followers and hears nothing from them: no proposal of its own is ever accepted."""

    name = "one-way-partition"
    about = "the leader is heard by both followers and hears neither"
    kit = "wires"
    embedded_only = True

    def begin(self, stage: Stage) -> None:
        """Cut the two wires that lead to it."""
        leader, wires = stage.ensemble.leader(), stage.ensemble.wires
        assert wires is not None
        for node in set(range(NODES)) - {leader}:
            wires.cut(node, leader)
