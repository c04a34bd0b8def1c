"""Packs messages into frames: the one place that says when a frame is full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from zkms.message.frame import Packed

Budget = tuple[int, int]
"""Bytes and messages that one frame may hold."""


@dataclass(slots=True, eq=False)
class Packer:
    """Fills one frame after the other; all its messages have one codec and one priority.

    A frame is full when the next message does not fit into its budget. Its first message always fits: sending refuses
    one that is too large. `take` adds one message; `fill` is faster for many.
    """

    budget: Budget
    """The limits of the frame that is being filled; they may change at any time."""
    packed: list[Packed] = field(default_factory=list)
    """The frame that is being filled."""
    size: int = 0
    """Its bytes."""

    def take(self, message: Packed) -> bool:
        """Add a message to the frame; return False if the frame is full."""
        largest, most = self.budget
        packed, size = self.packed, self.size + message.size
        if packed and (size > largest or len(packed) >= most):
            return False
        packed.append(message)
        self.size = size
        return True

    def fill(self, messages: Iterable[Packed]) -> Iterator[list[Packed]]:
        """Add messages, and yield each full frame; the rest stays in `packed`.

        The budget is read once for each frame, when it is begun.
        """
        packed, size = self.packed, self.size
        largest, most = self.budget
        for message in messages:
            added = message.size
            if packed and (size + added > largest or len(packed) >= most):
                full, packed, size = packed, [], 0
                self.packed = packed
                yield full
                largest, most = self.budget
            packed.append(message)
            size += added
        self.size = size
