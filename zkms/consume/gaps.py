"""Gap entries that the owner of a partition has reached: done with once they are told, and all before them is done.

One that flagged its queue as full stays until the flag is down too, or else nobody would know that it has to be.

A gap says that something before it may be missing. That may be a message in flight: it was fetched, and
then dropped from the queue to make room, so that it does not come again if its reader dies. As long as there is such a
one, the gap stays where it is, and the next reader is told of it.
"""

from __future__ import annotations

from collections.abc import Callable

from zkms.consume.entry_state import EntryState


class _Reached:
    """A gap entry, and the entries before it that are not wholly done with."""

    __slots__ = ("before", "entry", "flag", "told")

    def __init__(self, entry: EntryState, before: set[int], *, flag: bool) -> None:
        self.entry = entry
        self.before = before
        self.flag = flag
        self.told = False


class Gaps:
    """Of one partition, while it is ours. Not thread-safe: its dispatcher's lock guards it."""

    def __init__(self, done: Callable[[EntryState], object]) -> None:
        self._done = done
        """Given a gap entry that nobody needs any more."""
        self._open: set[int] = set()
        """Entries that were opened and are not wholly done with."""
        self._reached: dict[int, _Reached] = {}

    def opened(self, sequence: int) -> None:
        """Messages of an entry are delivered from now on."""
        self._open.add(sequence)

    def reach(self, entry: EntryState, *, flag: bool) -> None:
        """All that came before this gap is delivered; `flag` if the queue is flagged for it."""
        self._reached[entry.sequence] = _Reached(entry, set(self._open), flag=flag)

    def told(self, sequence: int) -> None:
        """The user has been told of a gap; of none, if it is not ours any more."""
        reached = self._reached.get(sequence)
        if reached is not None:
            reached.told = True
            self._settle()

    def unflagged(self) -> None:
        """The queue is not flagged any more, for none of the gaps that were reached."""
        for reached in self._reached.values():
            reached.flag = False
        self._settle()

    def finished(self, sequence: int) -> None:
        """An entry is wholly done with."""
        self._open.discard(sequence)
        if self._reached:
            for reached in self._reached.values():
                reached.before.discard(sequence)
            self._settle()

    def clear(self) -> None:
        """The partition is not ours any more."""
        self._open.clear()
        self._reached.clear()

    def _settle(self) -> None:
        for sequence, reached in list(self._reached.items()):
            if reached.told and not reached.flag and not reached.before:
                del self._reached[sequence]
                self._done(reached.entry)
