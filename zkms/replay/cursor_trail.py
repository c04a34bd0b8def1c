"""The trail of a reader by place: what it is done with, told once.

A batch may be read any number of times, by any number of tasks, before it is done with. So neither planning nor reading
is told, but the ack. Before it is sent, each message is `delivered`, and what was left out is `expired`: a process that
is killed while its ack is under way has told of it, or the trail knows that lines are missing. Once it is stored, they
are `acked`. If it never is, they come again, to a reader that calls them `redelivered`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from zkms.consume.ownership import Ownership
from zkms.errors import CannotDecode
from zkms.message import frame as frames
from zkms.message.frame import Frame
from zkms.replay.slices import Piece, fetch
from zkms.trail.event import called
from zkms.trail.hooks import Recorder
from zkms.tree.entry import Entry
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session

Tell = Callable[[int | None], None]
"""Called with the transaction that has stored it, if that is known."""


class Passage:
    """Tells what is done with of one durable subscription, in the epoch of one reader."""

    def __init__(self, trail: Recorder, session: Session, tree: Tree, topic: str, name: str, hold: Ownership) -> None:
        self._trail = trail
        self._session = session
        self._tree = tree
        self._topic = topic
        self._name = name
        self._handed = hold.handed
        self._lane: dict[str, Any] = {"kind": "durable", "partition": 0, "epoch": hold.since}
        self._told: dict[int, int] = {}
        self._acked: dict[int, int] = {}
        """The bits of what was told, by entry: an ack that is sent again is not told again."""

    def began(self, zxid: int) -> None:
        """It is ours, from this transaction on."""
        self._trail.note("subscribed", sub=self._name, topic=self._topic, zxid=zxid, **self._lane)

    def missed(self, reason: str) -> None:
        """Messages were removed by others, and our user is told."""
        self._trail.note("gap", sub=self._name, topic=self._topic, kind="durable", reason=reason)

    def look(self, pieces: Sequence[Piece], at: int) -> dict[int, Tell]:
        """Tell that these are handed over; what had expired at `at` was left out.

        Returns by the number of an entry how to tell that its piece is acked.
        """
        tellers: dict[int, Tell] = {}
        for piece, entry, found in fetch(self._session, self._tree, pieces):
            if isinstance(found, bytes):  # else another has removed it, who can tell
                tellers[entry.sequence] = self._hand_over(piece, entry, found, at)
        first = min(tellers, default=0)
        for told in (self._told, self._acked):
            for number in [number for number in told if number < first]:
                del told[number]
        return tellers

    def _hand_over(self, piece: Piece, entry: Entry, raw: bytes, at: int) -> Tell:
        wanted = ((1 << piece.last) - (1 << piece.first)) & ~piece.done
        new = _untold(self._told, entry, wanted)
        try:
            found = frames.decode(raw)
            if len(found.data) != entry.messages:
                raise CannotDecode(f"{len(found.data)} messages, and its name says {entry.messages}")
        except CannotDecode as error:
            if new:
                self._trail.set_aside(self._name, self._topic, entry, error.reason, "durable")
            return lambda _zxid: None
        bare = msgspec.structs.replace(found, data=[])  # what they hold is not needed any more
        known = {
            "sub": called(self._name, self._topic),
            "topic": found.topic or self._topic,
            "producer": found.producer,
            "priority": entry.priority or None,
            **self._lane,
        }
        expires = {place: extra.expires for place, extra in enumerate(found.extras or []) if extra is not None}
        late = sum(1 << place for place, when in expires.items() if 0 < when <= at)
        if read := new & ~late:
            again = found.again or self._handed.before(entry.priority, entry.sequence)
            event = "redelivered" if again else "delivered"
            self._trail.note(event, at=found.published_at, size=len(raw), **known, **_numbers(found, read))
        if gone := new & late:
            latest = max(when for place, when in expires.items() if gone >> place & 1)
            self._trail.note("expired", expires=latest, **known, **_numbers(found, gone))
        self._handed.reach(entry.priority, entry.sequence)

        def passed(zxid: int | None) -> None:
            """On the connection's thread."""
            if read := _untold(self._acked, entry, wanted & ~late):
                self._trail.note("acked", zxid=zxid, **known, **_numbers(bare, read))
            if piece.last < entry.messages:
                self._handed.stop_at(entry.priority, entry.sequence)

        return passed


def _untold(told: dict[int, int], entry: Entry, bits: int) -> int:
    """Those of these messages that were not told of before; from now on they were."""
    before = told.get(entry.sequence, 0)
    told[entry.sequence] = before | bits
    return bits & ~before


def _numbers(frame: Frame, bits: int) -> dict[str, Any]:
    """Which messages these are, as a line of a trail says it."""
    places = [place for place in range(bits.bit_length()) if bits >> place & 1]
    numbers = places if frame.numbers is None else [frame.numbers[place] for place in places]
    steps = [number - numbers[0] for number in numbers]
    whole = steps[-1] == len(steps) - 1
    return {"seq": frame.seq + numbers[0], "n": len(numbers), "places": None if whole else steps}
