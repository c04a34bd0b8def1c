"""When a message that failed is delivered again, and when it is a dead letter instead."""

from __future__ import annotations

from typing import NamedTuple

LONGEST_PAUSE = 3600.0
"""Seconds."""


class RetryPolicy(NamedTuple):
    """What happens to messages that fail: how often and when they are delivered again."""

    kind: str
    max_attempts: int | None
    backoff: float
    ttr: float | None

    def is_last(self, attempts: int) -> bool:
        """Whether there is no attempt after so many."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def pause(self, attempts: int) -> float:
        """Seconds before the next attempt after so many: doubled each time, an hour at the most."""
        return min(self.backoff * 2.0 ** (min(attempts, 64) - 1), LONGEST_PAUSE)
