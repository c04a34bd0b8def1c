"""Lists the queues, entries, bodies, flags and dead letters in the leader's tree, by their paths alone."""

from __future__ import annotations

from collections import Counter

from verification.simulation.ensemble import Ensemble
from zkms.zookeeper.wire import CREATED, DELETED

ROOT = "/zkms"


class Remains:
    """Reads a world's tree; it knows the paths of zkms, and nothing else."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble

    def _below(self, part: str, depth: int) -> list[str]:
        """Return the paths that many levels below a part of the tree."""
        start, slashes = f"{ROOT}/{part}/", 2 + depth
        znodes = self._ensemble.leader.tree.znodes
        return [path for path in znodes if path.startswith(start) and path.count("/") == slashes]

    def queues(self) -> list[str]:
        """Return the names of the queues."""
        return [path.rpartition("/")[2] for path in self._below("messages", 1)]

    def entries(self) -> list[str]:
        """Return the entries of all queues."""
        return self._below("messages", 3)

    def bodies(self) -> list[str]:
        """Return the bodies."""
        return self._below("bodies", 2)

    def letters(self) -> list[str]:
        """Return the dead letters, and quarantined entries."""
        return self._below("dead", 3)

    def flags(self) -> list[str]:
        """Return the full flags."""
        return [path for path in self._below("subscribers", 2) if path.endswith("!")]

    def deepest(self, topic: str) -> dict[str, int]:
        """Return, by queue, the most messages that it ever had, over all commits."""
        deep: Counter[str] = Counter()
        most: dict[str, int] = {}
        for transaction in self._ensemble.leader.log:
            for change in transaction.changes:
                queue, _, name = change.path.rpartition("/")
                if change.kind not in (CREATED, DELETED) or not queue.startswith(f"{ROOT}/messages/"):
                    continue
                if queue.endswith(f"/{topic}") and queue.count("/") == 4:
                    deep[queue] += _messages(name) if change.kind == CREATED else -_messages(name)
                    most[queue] = max(most.get(queue, 0), deep[queue])
        return most


def _messages(name: str) -> int:
    """Return how many messages an entry holds, by its name: KIND.COUNT..., perhaps after a priority."""
    parts = name.split(".")
    return int(parts[2] if parts[0].startswith("p") else parts[1])
