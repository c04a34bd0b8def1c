"""One cell of the table: the results of a workload under a nemesis."""

from __future__ import annotations

import msgspec

from verification.faults.orders import Workload


class Cell(msgspec.Struct, kw_only=True):
    """Counts; for caches `published` are writes, `delivered` reads, `lost` reads of what was known to be replaced."""

    nemesis: str
    workload: Workload
    seed: int
    seconds: float
    """From the first message to the last that was published."""
    fault: float
    """Seconds between the nemesis's beginning and its end."""
    published: int = 0
    unknown: int = 0
    """Messages whose outcome is unknown to the publisher."""
    refused: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    early: int = 0
    phantom: int = 0
    repeated: int = 0
    """Redeliveries that the guarantee allows."""
    gaps: int = 0
    pause: float = 0.0
    """The longest time that a client which was not itself a victim went without progress."""
    zookeeper: float = 0.0
    """The same for bare kazoo clients that wrote meanwhile."""
    settled: float = 0.0
    """Seconds from the last publish until all had arrived."""
    problems: list[str] = msgspec.field(default_factory=list)
    """What broke a guarantee, the first few in words, and processes that did not end well."""
    excused: list[str] = msgspec.field(default_factory=list)
    audit: str | None = None
    """What the audit of the trails says, where they were recorded."""
    evidence: str | None = None
    """The folder with journals, logs and trails, kept because of a violation."""

    @property
    def holds(self) -> bool:
        """Whether every guarantee held, and every process ended as it should."""
        counts = (self.lost, self.duplicated, self.out_of_order, self.early, self.phantom)
        return not any(counts) and not self.problems and self.audit != "broken"
