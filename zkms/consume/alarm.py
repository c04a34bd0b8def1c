"""A condition that also tells one who does not wait in it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Alarm(threading.Condition):
    """As a Condition; `heard`, if it is set, is called at each notification, with the lock held. It must not wait."""

    heard: Callable[[], None] | None = None

    def notify(self, n: int = 1) -> None:
        """Wake so many of those who wait; notify_all() comes here too."""
        super().notify(n)
        if self.heard is not None:
            self.heard()
