"""Records what happens to messages, off the hot path: whoever reports an event never waits for a disk.

Events go into a bounded queue, and a thread (zkms-trail) writes them in batches. When the queue is full, or the disk
refuses, lines are lost; they are counted, and a `lost` event says how many. The publisher's and subscribers' threads
pay for making an event and nothing else, so there is one for a frame and not one for a message.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from zkms.config import Trail
from zkms.message.frame import Packed
from zkms.message.message import LiveEntry
from zkms.names import PARTITION_MARK
from zkms.trail.event import Event, called, key_hash
from zkms.trail.hooks import (
    ConsumerLike,
    DelayedFrameLike,
    DispatcherLike,
    EntryStateLike,
    FrameLike,
    Recorder,
    SubscriberLike,
    TargetLike,
)
from zkms.trail.store import Store, encode_lines
from zkms.tree.entry import Entry, parse_entry

log = logging.getLogger("zkms.trail")
CHUNK = 1000
"""Lines that are encoded at a time: others may run in between."""
PER_LINE = 16
"""So many keys weigh as much as a line."""
COMPLAIN = 60.0


class FileRecorder(Recorder):
    """Writes the trail of one process, or of one bus in it, to files. Thread-safe."""

    records = True

    def __init__(self, trail: Trail, node: str) -> None:
        self.node = node
        self._pid = os.getpid()
        self._trail = trail
        self._store = Store(trail, node)
        self._lock = threading.Lock()
        self._queue: list[Event] = []
        self._weight = 0
        self._count = 0
        self.lost = 0
        """Lines lost so far."""
        self._unsaid = 0
        """Lines lost that no `lost` event has told of yet, and since when."""
        self._unsaid_since = 0.0
        self._session = (0, "connecting")
        """The session's generation and state that were recorded last."""
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._closed = False
        self._complained = float("-inf")
        self._thread = threading.Thread(target=self._run, name="zkms-trail", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # -- what happens --------------------------------------------------------------------------------------------

    def published(self, frame: FrameLike, producer: str, zxid: int | None) -> None:
        """A frame is stored for its targets. Where not all get all of it, there is an event for each part of it."""
        names = sorted({_called(target) for target in frame.targets})
        parted = any(t.picks is not None and not _is_whole_group(t) for t in frame.targets)
        if not parted and not frame.duplicates:
            self._stored("published", frame, producer, zxid, frame.packed, None, names)
            return
        stored = (place for place in range(len(frame.packed)) if place not in frame.duplicates)
        for subs, places in _shares(frame, stored).items():
            packed = [frame.packed[place] for place in places]
            self._stored("published", frame, producer, zxid, packed, places, list(subs))

    def _stored(
        self,
        event: str,
        frame: FrameLike,
        producer: str,
        zxid: int | None,
        packed: Sequence[Packed],
        places: list[int] | None,
        subs: list[str] | None,
        due: float | None = None,
    ) -> None:
        """What it was stored for: `places` counts from the frame's first number."""
        keys, ids = _marks(packed)
        first, holes = (0, None) if places is None else _spread(places)
        expires = max(message.expires for message in packed) if all(message.expires for message in packed) else None
        self.record(
            Event(
                event=event,
                t=time.time(),
                m=time.monotonic(),
                topic=frame.topic,
                producer=producer,
                seq=frame.seq + first,
                n=len(packed),
                places=holes,
                subs=subs,
                at=frame.at,
                size=frame.size,
                keys=keys,
                ids=ids,
                zxid=zxid,
                expires=expires,
                due=due,
                priority=packed[0].priority or None,
            ),
            1 + (len(packed) // PER_LINE if keys or ids else 0) + len(subs or ()) // PER_LINE,
        )

    def delayed(self, frame: DelayedFrameLike, producer: str, zxid: int | None) -> None:
        """A frame is stored, to be published when it is due; its messages that were no duplicates."""
        places = [place for place in range(len(frame.packed)) if place not in frame.duplicates]
        if places:
            packed = [frame.packed[place] for place in places]
            self._stored("delayed", frame, producer, zxid, packed, places, None, frame.due)

    def due(
        self, frame: FrameLike, producer: str, numbers: Sequence[int], left: Sequence[int], due: float, zxid: int | None
    ) -> None:
        """What is left of a frame is moved to its targets; `numbers` are those of its messages less the first one's."""
        for subs, places in _shares(frame, left).items():
            at = [numbers[place] for place in places]
            self._stored("due", frame, producer, zxid, [frame.packed[p] for p in places], at, [*subs], due)

    def delivered(self, subscriber: SubscriberLike, entry: LiveEntry, size: int, priority: int) -> None:
        """A frame goes to a live subscriber; its ack will be recorded as well."""
        sub = called(subscriber.id, subscriber.topic)
        first, places = (0, None) if entry.numbers is None else _spread(entry.numbers)

        def record(event: str, at: float | None = None, size: int | None = None) -> None:
            self.record(
                Event(
                    event=event,
                    t=time.time(),
                    m=time.monotonic(),
                    sub=sub,
                    topic=entry.topic,
                    kind="live",
                    producer=entry.producer,
                    seq=entry.seq + first,
                    n=entry.count,
                    places=places,
                    at=at,
                    size=size,
                    priority=priority or None,
                )
            )

        record("delivered", entry.published_at, size)
        entry.then(lambda: record("acked"))

    def moved(self, topic: str, old: str, new: str) -> None:
        """A live subscription goes on with a new queue."""
        self.note("unsubscribed", sub=old, topic=topic, kind="live", reason=f"its queue was taken away; now {new}")
        self.note("subscribed", sub=new, topic=topic, kind="live", reason=f"was {old}")

    def undecodable(self, subscriber: SubscriberLike, entry: LiveEntry, index: int, reason: str) -> None:
        """One message of a frame cannot become what the subscriber asked for."""
        self._single("dead", subscriber, entry, index, reason=reason)

    def expired(self, subscriber: SubscriberLike, entry: LiveEntry, index: int) -> None:
        """One message of a frame has expired before a live subscriber got it."""
        extra = None if entry.extras is None else entry.extras[index]
        self._single("expired", subscriber, entry, index, expires=None if extra is None else extra.expires)

    def _single(self, event: str, subscriber: SubscriberLike, entry: LiveEntry, index: int, **fields: Any) -> None:
        self.note(
            event,
            sub=called(subscriber.id, subscriber.topic),
            topic=entry.topic,
            kind="live",
            producer=entry.producer,
            seq=entry.seq + (index if entry.numbers is None else entry.numbers[index]),
            n=1,
            priority=parse_entry(entry.path.rpartition("/")[2]).priority or None,
            **fields,
        )

    def happened(
        self,
        event: str,
        consumer: ConsumerLike,
        dispatcher: DispatcherLike,
        entry: EntryStateLike,
        bits: int,
        *,
        zxid: int | None = None,
        reason: str | None = None,
    ) -> None:
        """What became of messages of a durable subscription or a group, a bit for each."""
        indexes = [index for index in range(entry.count) if bits >> index & 1]
        if not indexes:
            return
        numbers = indexes if entry.numbers is None else [entry.numbers[index] for index in indexes]
        first, places = _spread(numbers)
        tried = entry.tries.get(indexes[0]) if event == "nacked" else None
        given = event in ("delivered", "redelivered")
        self.note(
            event,
            sub=called(consumer.id, consumer.topic),
            topic=entry.topic,
            kind=consumer.kind,
            partition=dispatcher.partition,
            epoch=dispatcher.ownership.since,
            producer=entry.producer,
            seq=entry.seq + first,
            n=len(numbers),
            places=places,
            at=entry.published_at if given else None,
            size=entry.size if given else None,
            attempt=entry.attempts(indexes[0]) if len(indexes) == 1 and event != "acked" else None,
            due=None if tried is None else tried.due,
            expires=entry.expires(indexes[0]) if event == "expired" else None,
            priority=entry.priority or None,
            zxid=zxid,
            reason=reason,
        )

    def set_aside(self, sub: str, topic: str, entry: Entry, reason: str, kind: str = "live") -> None:
        """A queue entry is no frame of ours; whose messages it holds is known only if its name says so."""
        producer, seq = entry.body if entry.body is not None else (None, None)
        self.note(
            "dead",
            sub=sub,
            topic=topic,
            kind=kind,
            producer=producer,
            seq=seq,
            n=entry.messages,
            priority=entry.priority or None,
            reason=reason,
        )

    def purged(self, queue: str, topic: str, names: Iterable[str], reason: str) -> None:
        """Entries of these names were removed from the queue of a subscription, or of a partition."""
        messages = sum(parse_entry(name).messages for name in names)
        subscription, _, partition = queue.partition(PARTITION_MARK)
        number = int(partition) if partition.isdecimal() else None
        self.note("purged", sub=subscription, topic=topic, partition=number, n=messages, reason=reason)

    def session(self, generation: int, state: str) -> None:
        """The session is in this state; said again, it is recorded once."""
        if self._session != (generation, state):
            if generation > self._session[0] > 0:
                self.note("session", state="expired")
            self.note("session", state=state)
            self._session = generation, state

    def note(self, event: str, *, sub: str | None = None, topic: str | None = None, **fields: Any) -> None:
        """Anything that happens seldom."""
        if sub is not None and topic is not None:
            sub = called(sub, topic)
        self.record(Event(event=event, t=time.time(), m=time.monotonic(), sub=sub, topic=topic, **fields))

    def record(self, event: Event, weight: int = 1) -> None:
        """Keep an event, or count it as lost if too many wait already. Never blocks."""
        with self._lock:
            if self._closed:
                return
            self._count += 1
            event.i = self._count
            self._store.line_count.set(self._count, event.t)
            if self._weight >= self._trail.queue:
                self._lose(1, event.t)
                return
            self._queue.append(event)
            self._weight += weight
            first = len(self._queue) == 1
        if first:
            self._wake.set()

    def close(self) -> None:
        """Write what is left and finish the file. Safe to call again."""
        if os.getpid() != self._pid:
            return  # a forked child that exits: the file is its parent's
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._stop.set()
        self._wake.set()
        self._thread.join()
        self._store.close(self.lost)
        atexit.unregister(self.close)

    # -- writing -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._trail.file_seconds)  # a file grows old also where nothing happens any more
            self._stop.wait(self._trail.flush)
            self._wake.clear()
            self._drain()
        self._drain()

    def _drain(self) -> None:
        with self._lock:
            batch, self._queue, self._weight = self._queue, [], 0
            if self._unsaid:  # after what was kept, since it was lost while that waited
                self._count += 1
                reason = "too many lines waited, or the disk refused them"
                told = Event(event="lost", i=self._count, t=time.time(), m=time.monotonic(), reason=reason)
                self._store.line_count.set(self._count, told.t)
                told.n, told.at, self._unsaid = self._unsaid, self._unsaid_since, 0
                batch.append(told)
        written = 0
        try:
            while written < len(batch):
                chunk = batch[written : written + CHUNK]
                self._store.write(encode_lines(chunk), len(chunk))
                written += len(chunk)
            if self._store.full:
                for event in self._store.turn(self.lost):
                    self.record(event)
        except OSError as error:
            self._complain(error)
            with self._lock:
                for event in batch[written:]:
                    self._lose(1, event.t)
                    if event.event == "lost" and event.of is None:  # nobody has heard of those yet
                        self._unsaid += event.n or 0
                        self._unsaid_since = min(self._unsaid_since, event.at or event.t)

    def _lose(self, lines: int, since: float) -> None:
        """With the lock held."""
        self._unsaid_since = min(self._unsaid_since, since) if self._unsaid else since
        self._unsaid += lines
        self.lost += lines

    def _complain(self, error: OSError) -> None:
        now = time.monotonic()
        if now - self._complained > COMPLAIN:
            self._complained = now
            log.error("the trail cannot be written, lines are lost: %s", error)


@contextmanager
def recording(trail: Trail | None, node: str) -> Iterator[Recorder]:
    """A recorder for the block; it records nothing if no trail was asked for."""
    recorder = recorder_for(trail, node)
    try:
        yield recorder
    finally:
        recorder.close()


def recorder_for(trail: Trail | None, node: str) -> Recorder:
    """One that writes the trail, or one that records nothing if none was asked for."""
    return Recorder() if trail is None else FileRecorder(trail, node)


def _called(target: TargetLike) -> str:
    return called(target.member.subscription, target.member.topic)


def _shares(frame: FrameLike, places: Iterable[int]) -> dict[tuple[str, ...], list[int]]:
    """These messages of a frame, by the subscriptions that get them."""
    shares: dict[tuple[str, ...], list[int]] = {}
    for place in places:
        getters = {_called(target) for target in frame.targets if target.picks is None or place in target.picks}
        shares.setdefault(tuple(sorted(getters)), []).append(place)
    return shares


def _spread(numbers: Sequence[int]) -> tuple[int, list[int] | None]:
    """The first of these, and their distances from it; None if there is none between them that is left out."""
    first = numbers[0]
    return first, None if numbers[-1] - first == len(numbers) - 1 else [number - first for number in numbers]


def _is_whole_group(target: TargetLike) -> bool:
    """Whether what one partition does not get another one gets."""
    return target.member.registration.kind == "group" and target.member.registration.where is None


def _marks(packed: Sequence[Packed]) -> tuple[list[int] | None, list[str | None] | None]:
    """The hashes of the messages' keys and the ids that their publishers gave; None where there are none."""
    for message in packed:  # most have neither, and this is the cheapest way to know
        if message.extra is not None:
            break
    else:
        return None, None
    keys = [message.key for message in packed]
    ids = [message.id for message in packed]
    without = len(packed)
    hashes = None if keys.count(None) == without else [0 if key is None else key_hash(key) for key in keys]
    return hashes, None if ids.count(None) == without else ids
