"""The trail of a reader by place: what it has done with, told once that is stored.

A batch may be read any number of times, by any number of tasks, before it is done with. So neither planning nor reading
is told, but the ack: then each message is `delivered` and `acked`, once, and what was left out is `expired`. For that
the entries are looked at before they are removed: otherwise only their names are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from zkms import frame as frames
from zkms.errors import CannotDecode
from zkms.frame import Frame
from zkms.pieces import Piece, fetch
from zkms.session import Session
from zkms.trail.event import called
from zkms.trail.recorder import Recorder
from zkms.tree import Entry, Tree

Tell = Callable[[int | None], None]
"""Called with the transaction that has stored it, if that is known."""


class Passage:
    """Tells what is done with of one durable subscription, in the epoch of one reader."""

    def __init__(self, trail: Recorder, session: Session, tree: Tree, topic: str, name: str, epoch: int) -> None:
        self._trail = trail
        self._session = session
        self._tree = tree
        self._topic = topic
        self._name = name
        self._lane: dict[str, Any] = {"kind": "durable", "partition": 0, "epoch": epoch}
        self._told: dict[int, int] = {}
        """The bits of what was told, by entry: an ack that is sent again is not told again."""

    def began(self, zxid: int) -> None:
        """It is ours, from this transaction on."""
        self._trail.note("subscribed", sub=self._name, topic=self._topic, zxid=zxid, **self._lane)

    def missed(self, reason: str) -> None:
        """Messages were removed by others, and our user is told."""
        self._trail.note("gap", sub=self._name, topic=self._topic, kind="durable", reason=reason)

    def look(self, pieces: Sequence[Piece], at: int) -> dict[int, Tell]:
        """By the number of an entry, how to tell that its piece is done with; what had expired at `at` was left out."""
        tellers: dict[int, Tell] = {}
        for piece, entry, found in fetch(self._session, self._tree, pieces):
            if isinstance(found, bytes):  # else another has removed it, who can tell
                tellers[entry.sequence] = self._teller(piece, entry, found, at)
        first = min(tellers, default=0)
        self._told = {number: bits for number, bits in self._told.items() if number >= first}
        return tellers

    def _teller(self, piece: Piece, entry: Entry, raw: bytes, at: int) -> Tell:
        wanted = ((1 << piece.last) - (1 << piece.first)) & ~piece.done
        try:
            found = frames.decode(raw)
            if len(found.data) != entry.messages:
                raise CannotDecode(f"{len(found.data)} messages, and its name says {entry.messages}")
        except CannotDecode as error:
            reason = error.reason
            return lambda _zxid: self._damaged(entry, wanted, reason)
        bare, size = msgspec.structs.replace(found, data=[]), len(raw)  # what they hold is not needed any more
        known = {
            "sub": called(self._name, self._topic),
            "topic": found.topic or self._topic,
            "producer": found.producer,
            "priority": entry.priority or None,
            **self._lane,
        }
        return lambda zxid: self._passed(bare, self._untold(entry, wanted), at, size, zxid, known)

    def _passed(self, frame: Frame, bits: int, at: int, size: int, zxid: int | None, known: dict[str, Any]) -> None:
        """On the connection's thread."""
        expires = {place: extra.expires for place, extra in enumerate(frame.extras or []) if extra is not None}
        late = sum(1 << place for place, when in expires.items() if 0 < when <= at)
        if read := bits & ~late:
            given = _numbers(frame, read)
            self._trail.note("delivered", at=frame.published_at, size=size, **known, **given)
            self._trail.note("acked", zxid=zxid, **known, **given)
        if gone := bits & late:
            latest = max(when for place, when in expires.items() if gone >> place & 1)
            self._trail.note("expired", expires=latest, **known, **_numbers(frame, gone))

    def _damaged(self, entry: Entry, bits: int, reason: str) -> None:
        if self._untold(entry, bits):
            self._trail.set_aside(self._name, self._topic, entry, reason, "durable")

    def _untold(self, entry: Entry, bits: int) -> int:
        """Those of these messages that were not told of before; from now on they were."""
        told = self._told.get(entry.sequence, 0)
        self._told[entry.sequence] = told | bits
        return bits & ~told


def _numbers(frame: Frame, bits: int) -> dict[str, Any]:
    """Which messages these are, as a line of a trail says it."""
    places = [place for place in range(bits.bit_length()) if bits >> place & 1]
    numbers = places if frame.numbers is None else [frame.numbers[place] for place in places]
    steps = [number - numbers[0] for number in numbers]
    whole = steps[-1] == len(steps) - 1
    return {"seq": frame.seq + numbers[0], "n": len(numbers), "places": None if whole else steps}
