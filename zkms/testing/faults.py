"""What a proxy is to do wrong: set by tests from any thread, asked by its connections."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from zkms.errors import InvalidArgument
from zkms.testing import wire


@dataclass(eq=False)
class Cut:
    """A connection to be cut when a certain request comes: before it or, with `reply`, after it was carried out."""

    operation: str | None
    remaining: int
    reply: bool
    done: threading.Event = field(default_factory=threading.Event)

    def hit_by(self, operation: str) -> bool:
        """Count a request; True for the one that was waited for."""
        if self.operation is None and operation in (wire.PING, wire.CONNECT):
            return False  # they come by themselves: "any request" means one that the test made
        if self.operation not in (None, operation):
            return False
        self.remaining -= 1
        return self.remaining == 0


class Faults:
    """The faults that hold now, and a count of the requests that have come."""

    def __init__(self) -> None:
        """Begin without any."""
        self.black_hole = False
        self.refuse = False
        self.delay = 0.0
        self.deaf = False
        self.pace: tuple[int, float] | None = None
        """Bytes of a piece of a reply, and the seconds after each."""
        self.unknown: set[str] = set()
        """Operations that the server shall not know."""
        self._lock = threading.Lock()
        self._cuts: list[Cut] = []
        self._requests: Counter[str] = Counter()

    @property
    def requests(self) -> Counter[str]:
        """A copy of the counts by operation."""
        with self._lock:
            return self._requests.copy()

    def cut(self, n: int, op: str | None, *, reply: bool) -> Cut:
        """Plan a cut at the n-th request from now of an operation, or of any."""
        if op is not None:
            self.check(op)
        if n < 1:
            raise InvalidArgument(f"requests are counted from 1, not {n}")
        cut = Cut(op, n, reply)
        with self._lock:
            self._cuts.append(cut)
        return cut

    def check(self, op: str) -> None:
        """`InvalidArgument` if ZooKeeper has no such operation."""
        known = {*wire.OPERATIONS.values(), wire.CONNECT}
        if op not in known:
            raise InvalidArgument(f"{op!r} is no operation of ZooKeeper: choose from {', '.join(sorted(known))}")

    def take(self, operation: str) -> Cut | None:
        """Count a request, and return the cut that it sets off; of several that wait for the same one, the oldest."""
        with self._lock:
            self._requests[operation] += 1
            hit = [cut for cut in self._cuts if cut.hit_by(operation)]
            self._cuts = [cut for cut in self._cuts if cut not in hit[:1]]
            for late in hit[1:]:
                late.remaining = 1  # takes the next one instead
            return hit[0] if hit else None

    def heal(self) -> None:
        """Undo every fault and forget the cuts that still wait."""
        with self._lock:
            self._cuts.clear()
        self.unknown.clear()
        self.black_hole, self.refuse, self.delay, self.deaf, self.pace = False, False, 0.0, False, None
