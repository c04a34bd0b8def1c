"""Records in the trail what a cursor has acked, each message once.

A batch may be read any number of times, by any number of tasks, before it is acked. So the ack is recorded, not the
reads. Before it is sent, each message is recorded as `delivered`, or as `expired` if it was left out: a process that is
killed while its ack is in flight has recorded it, or the trail knows that lines are missing. When the ack is stored,
the messages are recorded as `acked`. If it never is, they are delivered again, and recorded as `redelivered`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from zkms.consume.ledger_commits import Ownership
from zkms.errors import CannotDecode
from zkms.message import frame as frames
from zkms.message.frame import Frame
from zkms.replay.slices import Slice, read_slices
from zkms.trail.event import called
from zkms.trail.hooks import Recorder
from zkms.tree.entry import Entry
from zkms.tree.paths import Tree
from zkms.zookeeper.session import Session

Tell = Callable[[int | None], None]
"""Records an ack; takes the transaction that stored it, if that is known."""


class CursorTrail:
    """Records what is acked of one durable subscription, in the epoch of one reader."""

    def __init__(
        self, trail: Recorder, session: Session, tree: Tree, topic: str, name: str, ownership: Ownership
    ) -> None:
        self._trail = trail
        self._session = session
        self._tree = tree
        self._topic = topic
        self._name = name
        self._watermark = ownership.watermark
        self._partition: dict[str, Any] = {"kind": "durable", "partition": 0, "epoch": ownership.since}
        self._told: dict[int, int] = {}
        self._acked: dict[int, int] = {}
        """By entry, the bits of the recorded messages: an ack that is sent again is not recorded again."""

    def began(self, zxid: int) -> None:
        """Record that the subscription is ours from this transaction on."""
        self._trail.note("subscribed", sub=self._name, topic=self._topic, zxid=zxid, **self._partition)

    def missed(self, reason: str) -> None:
        """Record that messages were removed by others."""
        self._trail.note("gap", sub=self._name, topic=self._topic, kind="durable", reason=reason)

    def look(self, slices: Sequence[Slice], at: int) -> dict[int, Tell]:
        """Record these messages as delivered, or as expired if they were at `at`.

        Returns, by the entry's sequence, the function that records its slice as acked.
        """
        tellers: dict[int, Tell] = {}
        for part, entry, found in read_slices(self._session, self._tree, slices):
            if isinstance(found, bytes):  # else it was removed by another client, which has recorded it
                tellers[entry.sequence] = self._deliver(part, entry, found, at)
        first = min(tellers, default=0)
        for told in (self._told, self._acked):
            for number in [number for number in told if number < first]:
                del told[number]
        return tellers

    def _deliver(self, part: Slice, entry: Entry, raw: bytes, at: int) -> Tell:
        wanted = ((1 << part.last) - (1 << part.first)) & ~part.done
        new = _untold(self._told, entry, wanted)
        try:
            found = frames.decode(raw)
            if len(found.data) != entry.messages:
                raise CannotDecode(f"{len(found.data)} messages, and its name says {entry.messages}")
        except CannotDecode as error:
            if new:
                self._trail.set_aside(self._name, self._topic, entry, error.reason, "durable")
            return lambda _zxid: None
        bare = msgspec.structs.replace(found, data=[])  # frees the data, which is not needed any more
        known = {
            "sub": called(self._name, self._topic),
            "topic": found.topic or self._topic,
            "producer": found.producer,
            "priority": entry.priority or None,
            **self._partition,
        }
        expires = {place: extra.expires for place, extra in enumerate(found.extras or []) if extra is not None}
        late = sum(1 << place for place, when in expires.items() if 0 < when <= at)
        if read := new & ~late:
            again = found.again or self._watermark.before(entry.priority, entry.sequence)
            event = "redelivered" if again else "delivered"
            self._trail.note(event, at=found.published_at, size=len(raw), **known, **_numbers(found, read))
        if gone := new & late:
            latest = max(when for place, when in expires.items() if gone >> place & 1)
            self._trail.note("expired", expires=latest, **known, **_numbers(found, gone))
        self._watermark.reach(entry.priority, entry.sequence)

        def passed(zxid: int | None) -> None:
            """Record the ack, on the connection's thread."""
            if read := _untold(self._acked, entry, wanted & ~late):
                self._trail.note("acked", zxid=zxid, **known, **_numbers(bare, read))
            if part.last < entry.messages:
                self._watermark.stop_at(entry.priority, entry.sequence)

        return passed


def _untold(told: dict[int, int], entry: Entry, bits: int) -> int:
    """Return the bits of the messages that were not recorded before, and mark them as recorded."""
    before = told.get(entry.sequence, 0)
    told[entry.sequence] = before | bits
    return bits & ~before


def _numbers(frame: Frame, bits: int) -> dict[str, Any]:
    """Return the numbers of these messages as fields of a trail's line."""
    places = [place for place in range(bits.bit_length()) if bits >> place & 1]
    numbers = places if frame.numbers is None else [frame.numbers[place] for place in places]
    steps = [number - numbers[0] for number in numbers]
    whole = steps[-1] == len(steps) - 1
    return {"seq": frame.seq + numbers[0], "n": len(numbers), "places": None if whole else steps}
