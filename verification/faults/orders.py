"""What a process of a trial is told when it is started: one JSON document on its command line."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

TOPIC = "work"
KEYS = 5
"""Keys of each publisher's messages: number modulo this."""

Workload = Literal["live", "durable", "group", "delayed", "cache"]
How = Literal["handler", "manual", "fetch"]


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """Who it is, where ZooKeeper is, and what to do there."""

    name: str
    hosts: str
    root: str
    journal: str
    workload: Workload
    seed: int = 0
    session_timeout: float = 4.0
    patience: float = 60.0
    """Seconds that a request may take."""
    rate: float = 25.0
    """Turns of a publisher in a second."""
    how: How = "handler"
    """How a consumer takes messages: a handler that acks by returning, one that acks by itself, or fetch()."""
    subscription: str = ""
    """Of a durable one its name, of a group the group's."""
    cleaner: bool = False
    trail: str | None = None

    def connection(self) -> dict[str, Any]:
        """Arguments of zkms.connect(); a process that has to start in the middle of a fault gets the time to."""
        return {
            "root": self.root,
            "client_id": self.name,
            "cleaner": self.cleaner,
            "session_timeout": self.session_timeout,
            "connect_timeout": 60.0,
            "request_timeout": 60.0,
            "trail": self.trail,
        }
