"""Who takes part in a generated trail: nodes that come and go with each shift, subscriptions that stay."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

NODES = 8
PARTITIONS = 8
SHIFT = 300.0
"""Seconds that a node lives; then all are replaced, as by a deployment."""
BEGINNING = 1_767_225_600.0
"""2026-01-01 in UTC: generated trails are the same whenever they are made."""
FLUSH = 0.2

TOPICS = (
    *("users", "orders", "jobs", "reminders", "offers"),
    *("paint", "alarms", "metrics.cpu", "metrics.disk", "metrics.*"),
)
USERS, ORDERS, JOBS, REMINDERS, OFFERS, PAINT, ALARMS, CPU, DISK, METRICS = range(10)
DURABLES = ("audit", "billing")
GROUPS = {JOBS: "workers", REMINDERS: "callers", OFFERS: "mailers"}


@dataclass
class Shift:
    """One generation of nodes: what is random about them."""

    number: int
    rng: np.random.Generator
    skew_seconds: float
    begin: float = field(init=False)
    nodes: list[str] = field(init=False)
    runs: list[str] = field(init=False)
    skew: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rng = self.rng
        self.begin = BEGINNING + self.number * SHIFT
        self.hosts = [f"web-{k:02d}" for k in range(NODES)]
        self.pids = rng.integers(300, 32_000, NODES)
        self.runs = [rng.bytes(6).hex() for _ in range(NODES)]
        self.nodes = [f"{h}-{p}-{r[:8]}" for h, p, r in zip(self.hosts, self.pids, self.runs, strict=True)]
        self.skew = rng.uniform(-1, 1, NODES) * self.skew_seconds
        self.boot = self.begin - rng.uniform(1e4, 1e6, NODES)
        roles = rng.permutation(NODES)
        self.killed, self.lossy, self.slow, self.leader = (int(k) for k in roles[:4])
        """Nodes that: are killed; lose lines of their trail; have a full queue for a while; move what is due."""
        self.steady = roles[2:]
        """Nodes whose trail is complete."""
        self.kill_at = self.begin + rng.uniform(0.4, 0.6) * SHIFT
        self.lossy_at = self.begin + rng.uniform(0.2, 0.3) * SHIFT
        self.full_from = self.begin + rng.uniform(0.3, 0.35) * SHIFT
        self.full_until = self.full_from + 3.0
        able = roles[1:]  # a partition of the killed node would need a new owner in the middle
        self.owner = {name: rng.choice(able, PARTITIONS) for name in GROUPS.values()}
        self.durable_owner = {name: int(rng.choice(roles[3:])) for name in DURABLES}

    @property
    def epoch(self) -> int:
        """Of everything that has an owner in this shift; the first shift took over from somebody, too."""
        return self.number + 2

    @property
    def sources(self) -> list[str]:
        """The nodes' files."""
        moment = datetime.fromtimestamp(self.begin, UTC).strftime("%Y%m%dT%H%M%S%f")
        return [f"{node}-{moment}-000001" for node in self.nodes]


def spread(ids: np.ndarray) -> np.ndarray:
    """Numbers as hashes from 1 to 2**63 - 1 (splitmix64), as keys have them."""
    with np.errstate(over="ignore"):
        x = ids.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    hashes: np.ndarray = np.maximum(x >> np.uint64(1), np.uint64(1)).astype(np.int64)
    return hashes
