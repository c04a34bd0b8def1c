"""Which entries of a lane may have been handed over before we came to read it: a trail calls them redelivered.

An owner that gives its lane back leaves word in the ledger of how far it has come, by priority, as entries are handed
over in order within one. After an owner that died, nobody can tell what was in its hands; but nothing that was stored
after its end can have been.
"""

from __future__ import annotations

from collections.abc import Callable

from zkms.errors import NodeMissing
from zkms.tree.entry import parse_entry
from zkms.tree.records import Ledger
from zkms.zookeeper.recipes import count_created
from zkms.zookeeper.session import Session


class Watermark:
    """Of one lane, while it is ours. Not thread-safe: its lane's lock guards it."""

    def __init__(self, ledger: Ledger, *, clean: bool) -> None:
        known = ledger.epoch <= 1 or (clean and ledger.handed is not None)  # of the first owner there is nothing to say
        self._before: dict[int, int] = (ledger.handed or {}) if known else {}
        self._reached = dict(self._before)
        self.doubtful: Callable[[], int | None] = (lambda: ledger.doubtful) if known else (lambda: None)
        """Entries below this number may have been handed over, whatever is known of others; None: not known yet."""
        self.known = known
        """Whether the ledger says all that there is to say."""

    def before(self, priority: int, sequence: int) -> bool:
        """Whether an entry may have been handed over before us."""
        return sequence < self._before.get(priority, 0) or sequence < (self.doubtful() or 0)

    def reach(self, priority: int, sequence: int) -> None:
        """An entry is handed over, and so are those of its priority that came before it."""
        if sequence >= self._reached.get(priority, 0):
            self._reached[priority] = sequence + 1

    def stop_at(self, priority: int, sequence: int) -> None:
        """What was handed over of this entry is done with; the rest of it never was."""
        self._reached[priority] = max(self._before.get(priority, 0), sequence)

    def noted(self, ledger: Ledger) -> Ledger:
        """With the word for the next owner."""
        doubtful = self.doubtful()
        handed = None if doubtful is None else self._reached
        return Ledger(ledger.owner, ledger.claim, ledger.epoch, ledger.parts, handed, doubtful or 0)


def first_after(session: Session, queue: str, zxid: int) -> int:
    """The number of the first entry, there or to come, that was stored after this transaction."""
    try:
        names, stat = session.children(queue)
    except NodeMissing:
        return 0
    numbers = sorted((entry.sequence, entry.name) for entry in map(parse_entry, names) if not entry.foreign)
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        found = session.exists(f"{queue}/{numbers[middle][1]}")
        if found is None or found.czxid <= zxid:  # one that was removed meanwhile might as well have been before
            low = middle + 1
        else:
            high = middle
    return numbers[low][0] if low < len(numbers) else count_created(stat)
