"""An audience: subscribers that write down what they get, and can be waited for."""

from __future__ import annotations

import threading

import zkms


class Listener:
    """One subscriber with a bus of its own, and all that it got, in order."""

    def __init__(self, bus: zkms.Bus, topic: str, **options: object) -> None:
        """Subscribe."""
        self.got: list[object] = []
        self.gaps: list[str] = []
        self._changed = threading.Condition()
        self.bus = bus
        self.subscription = bus.subscribe(topic, self._hear, on_gap=lambda gap: self.gaps.append(gap.reason), **options)  # type: ignore[arg-type]

    def _hear(self, message: zkms.Message) -> None:
        with self._changed:
            self.got.append(message.data)
            self._changed.notify_all()

    def await_last(self, last: object, timeout: float = 30.0) -> list[object]:
        """All that came, once `last` has come."""
        with self._changed:
            assert self._changed.wait_for(lambda: bool(self.got) and self.got[-1] == last, timeout), (
                f"{last!r} did not come; the last were {self.got[-3:]}"
            )
            return [*self.got]
