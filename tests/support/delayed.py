"""What the tests of delayed messages share, in whichever room they are."""

from __future__ import annotations

import threading
import time
from typing import Any

from zkms_cleaner import Election

import zkms

TOPIC = "reminders"
OPTIONS = {"session_timeout": 8.0, "request_timeout": 30.0}
"""What their buses are connected with."""


class Listener:
    """Writes down what a subscription gets, and when."""

    def __init__(self, bus: zkms.Bus, topic: str = TOPIC, **options: Any) -> None:
        """Subscribe."""
        self.got: list[Any] = []
        self.at: list[float] = []
        self._lock = threading.Lock()
        self.subscription = bus.subscribe(topic, self._hear, **options)

    def _hear(self, message: zkms.Message) -> None:
        with self._lock:
            self.at.append(time.time())
            self.got.append(message.data)


class Sleeper:
    """Leads the cleaners and does nothing: what is due waits, until the lead is given away."""

    def __init__(self, bus: zkms.Bus) -> None:
        """Take the lead."""
        self._election = Election(bus.parts.session, bus.parts.tree, bus.client_id)
        lead = self._election.lead()
        assert lead is not None
        self.lead = lead

    def give_way(self) -> None:
        """Let the next one lead."""
        self._election.resign()
