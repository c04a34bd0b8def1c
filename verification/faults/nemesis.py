"""A nemesis: a fault of an ensemble or its clients while messages flow, with a name, a beginning and an end."""

from __future__ import annotations

from typing import ClassVar

from verification.faults.ensemble import Kit
from verification.faults.orders import Workload
from verification.faults.stage import Stage


class Nemesis:
    """One fault. `end` undoes what `begin` did."""

    name: ClassVar[str]
    about: ClassVar[str]
    """What it does, for the table."""
    kit: ClassVar[Kit] = "plain"
    """What the servers have to be equipped with."""
    proxied: ClassVar[bool] = False
    """Whether all clients go through proxies."""
    clocked: ClassVar[bool] = False
    """Whether all clients have clocks that can jump."""
    embedded_only: ClassVar[bool] = False
    longer_than_a_session: ClassVar[bool] = False
    """Whether it has to last until the sessions of its victims are over."""
    excuses: ClassVar[frozenset[str]] = frozenset()
    """Violations that no guarantee rules out under this fault."""
    spares: ClassVar[frozenset[Workload]] = frozenset()
    """Workloads that it is not for."""

    def begin(self, stage: Stage) -> None:
        """Break something."""

    def end(self, stage: Stage) -> None:
        """Make it whole again."""
        stage.ensemble.heal()


class Calm(Nemesis):
    """No fault, for comparison."""

    name = "none"
    about = "nothing is broken"
