"""The settings of the live job."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from zkms_spark.errors import AnalysisError
from zkms_spark.live.slo import Slo
from zkms_spark.traffic.traffic import MINUTE


@dataclass(frozen=True)
class FollowSettings:
    """Checked when made: `AnalysisError` says what cannot work."""

    trail: str
    """An exported trail, on any file system that Spark knows."""
    state: Path
    """Figures, progress and Spark's checkpoint: a directory of the driver's."""
    slo: Slo = field(default_factory=Slo)
    step: float = MINUTE
    """Seconds of a window."""
    late: float = 180.0
    """Seconds that a node's trail may come after those of others: a window is closed so long after its end."""
    every: float = 10.0
    """Seconds between two looks for new files."""
    files: int = 200
    """In a batch, at the most."""
    audit_every: float = 600.0
    """Seconds between two audits of the whole trail; 0 for none."""
    keep: float = 7 * 86400.0
    """Seconds that windows are kept."""
    webhook: str | None = None
    topic: str | None = None
    hosts: str | None = None
    root: str = "/zkms"
    once: bool = False
    """End when all that is there has been taken."""

    def __post_init__(self) -> None:
        for name in ("step", "late", "every", "audit_every", "keep"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or (value == 0 and name in ("step", "every", "keep")):
                raise AnalysisError(f"{name}={value:g} is no span of time: give seconds")
        if self.files < 1:
            raise AnalysisError(f"files={self.files}: a batch has at least one file")
        if self.webhook is not None and (
            urlsplit(self.webhook).scheme not in ("http", "https") or not urlsplit(self.webhook).hostname
        ):
            raise AnalysisError(f"{self.webhook!r} is no webhook: give an http:// or https:// URL")
        if self.topic is not None and not self.hosts:
            raise AnalysisError("alerts go onto a topic through ZooKeeper: say where it is with hosts")
