"""Delivers the messages of one partition that we own, in order, and takes their acks and failures.

A message that fails is due again after a while, and until it is done with, nothing else of its *scope* is delivered: in
a group that is its key (messages without a key wait for nobody), in a durable subscription the whole partition. So
order is kept across retries, and a key whose message keeps failing does not stop the others.

After an owner that died, nobody knows which message was in flight with it. The first messages after such a takeover are
therefore noted in the ledger before they are delivered, so that a message that kills its readers is found.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Protocol

import msgspec

from zkms.consume.entry_state import LATE, EntryState
from zkms.consume.ledger_commits import Ownership
from zkms.consume.retry_policy import RetryPolicy
from zkms.context import Context
from zkms.deliver.inbox import Fetched, Inbox, Item, Marker
from zkms.errors import CannotDecode
from zkms.message import frame as frames
from zkms.message.decode import Decoder, Undecodable
from zkms.message.frame import Packed
from zkms.message.message import Message
from zkms.trail.hooks import ConsumerLike
from zkms.tree.records import DeadLetter, GapRecord, Try, decode, encode
from zkms.zookeeper.operations import Create

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("zkms.consume")
CAREFUL = 128
"""Messages noted in the ledger before delivery after an owner died; at most so many are handled and not yet stored."""
AHEAD = 16
"""Messages noted by one write, where none of them has failed before."""
MAX_FAILING = 256
"""Messages that may wait for another attempt at the same time, as the ledger lists each; then nothing is delivered."""
LONGEST_ERROR = 160
DURABLE = ""
"""The scope of all messages of a durable subscription."""


class Notes(ConsumerLike, Protocol):
    """The consumer, as its dispatchers know it; called with the lock held, so none of it may wait."""

    def gap(self, reason: str, told: Callable[[], None] | None = None) -> None:
        """Something may have been missed at this place; `told` is called when the user knows, with the lock held."""
        ...

    def flagged(self) -> None:
        """All that came before the full flag is delivered: it may be cleared."""
        ...

    def unreadable(self, fetched: Fetched, error: Exception) -> None:
        """An entry that is not ours, or damaged."""
        ...

    def undecodable(self, problem: Undecodable) -> None:
        """A message that cannot become what the subscriber asked for."""
        ...


class _Scope:
    """Messages of one scope that wait for the first of them."""

    __slots__ = ("delivered", "due", "messages")

    def __init__(self) -> None:
        self.messages: list[tuple[int, int, Message]] = []
        """By entry and place."""
        self.due = 0.0
        self.delivered = False
        """Whether the first one has been delivered."""

    def place(self, sequence: int, index: int) -> int | None:
        """The index of a message among those that wait, which is nearly always 0; None if it does not wait."""
        for place, waiting in enumerate(self.messages):
            if waiting[0] == sequence and waiting[1] == index:
                return place
        return None


class _ReachedGap:
    """A gap entry, and the entries before it that are not wholly done with."""

    __slots__ = ("before", "entry", "flag", "told")

    def __init__(self, entry: EntryState, before: set[int], *, flag: bool) -> None:
        self.entry = entry
        self.before = before
        self.flag = flag
        self.told = False


class _Gaps:
    """The gap entries of one partition that its owner has reached. Its dispatcher's lock guards it.

    A gap is done with once the user is told of it, and all entries before it are done with. It says that something
    before it may be missing, and that may be a message in flight, which was fetched and then dropped from the queue to
    make room, so that it does not come again if its reader dies: the gap stays as long as there is one, and the next
    reader is told of it. A gap for which the full flag was set stays until the flag is cleared, or nobody would know
    that it has to be.
    """

    def __init__(self, done: Callable[[EntryState], object]) -> None:
        self._done = done
        """Called with a gap entry that is done with."""
        self._open: set[int] = set()
        """Entries that were opened and are not wholly done with."""
        self._reached: dict[int, _ReachedGap] = {}

    def opened(self, sequence: int) -> None:
        """Messages of an entry are delivered from now on."""
        self._open.add(sequence)

    def reach(self, entry: EntryState, *, flag: bool) -> None:
        """All that came before this gap is delivered; `flag` if the full flag is set for it."""
        self._reached[entry.sequence] = _ReachedGap(entry, set(self._open), flag=flag)

    def told(self, sequence: int) -> None:
        """The user has been told of a gap; of none, if it is not ours any more."""
        reached = self._reached.get(sequence)
        if reached is not None:
            reached.told = True
            self._settle()

    def unflagged(self) -> None:
        """The full flag is cleared, for all gaps that were reached."""
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


class Dispatcher:
    """Delivers the messages of one partition. Guarded by `lock`, which is its consumer's."""

    def __init__(
        self,
        topic: str,
        partition: int,
        ownership: Ownership,
        inbox: Inbox,
        decoder: Decoder,
        policy: RetryPolicy,
        lock: threading.Condition,
        letter_path: Callable[[int], str],
        note: Notes,
        owner: Context,
        *,
        careful: bool,
        parking: int,
        patience: float,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.ownership = ownership
        self.inbox = inbox
        self.in_flight = 0
        """Messages that are delivered and not done with."""
        self.handled = 0
        self.leaving = False
        """Whether the partition is released as soon as nothing is in flight."""
        self.crowded = False
        """Whether nothing was delivered because too much is in flight."""
        self._decoder = decoder
        self._policy = policy
        self.ttr = policy.ttr
        """Seconds that a message may be in flight; None for as long as it takes."""
        self.lock = lock
        self._letter_path = letter_path
        self._note = note
        self.owner = owner
        """The context of the process that reads it."""
        self._trail = owner.trail
        self._careful = CAREFUL if careful else 0
        self._parking = parking
        self.patience = patience
        self._gaps = _Gaps(ownership.mark)
        self._stack: list[tuple[EntryState, Iterator[Message | Undecodable]]] = []
        """Entries that are being delivered: the last one first, those below it have a lower priority."""
        self._scopes: dict[str, _Scope] = {}
        self._resumed: deque[Message] = deque()
        """Messages that have waited for another one of their scope, and are next."""
        self._parked = 0
        """Messages that wait: for their time, for another one, or to be next."""
        self._failing = 0
        """Messages among them that have failed."""
        self._timers: list[tuple[float, int, str, Message | None]] = []
        """When scopes, or messages without one, are due again."""
        self._tickets = itertools.count()
        self._times: deque[tuple[float, Message]] = deque()
        """Messages with a time to run, in the order of being delivered."""

    @property
    def lost(self) -> str | None:
        """Why the partition is not ours any more."""
        return self.ownership.lost

    # -- delivering ----------------------------------------------------------------------------------------------

    def take(self) -> Message | None:
        """The next message that may be delivered now; None if there is none."""
        if self.leaving or self.lost is not None:
            return None
        while self._resumed:  # before what is due: they come before it
            self._parked -= 1
            resumed = self._resumed.popleft()
            if self._passes(resumed):
                return self._deliver(resumed)
        if self._timers and (message := self._take_due()) is not None:
            return self._deliver(message)
        if not self._resumed and (self._failing >= MAX_FAILING or self._parked >= self._parking):
            return None
        if DURABLE in self._scopes and self._policy.kind == "durable":
            return None
        while (message := self._take_next()) is not None:
            if self._scopes or not message.entry.plain or message.entry.done:
                if self._passes(message):
                    return self._deliver(message)
                continue
            return self._deliver(message)
        return None

    def take_some(self, most: int) -> tuple[list[Message], Future[None] | None]:
        """Messages that may be delivered now, at most so many; and what has to be stored before they are, if anything.

        After an owner that died they come one by one, each noted in the ledger as delivered before it is.
        """
        message = self.take()
        if message is None:
            return [], None
        taken = [message]
        if self._careful > 0:
            return taken, self._note_delivery(message)
        if self._scopes or self._resumed or self._timers or not self._stack:
            return taken, None  # one by one
        entry, items = self._stack[-1]
        # A map makes messages, and nothing that could not be decoded.
        if entry.plain and isinstance(items, map) and self.inbox.top <= entry.priority:
            taken += islice(items, most - 1)
            self.in_flight += len(taken) - 1
            if self.ttr is not None:
                until = time.monotonic() + self.ttr
                self._times += [(until, each) for each in taken[1:]]
        return taken, None

    def stop(self) -> bool:
        """Deliver nothing more, and return whether nothing is in flight."""
        with self.lock:
            self.leaving = True
            return self.in_flight == 0

    def next_due(self) -> float | None:
        """When the next failed message is due again; None if none is, or nothing is delivered any more."""
        return self._timers[0][0] if self._timers and not self.leaving and self.lost is None else None

    def _take_next(self) -> Message | None:
        if self._resumed:
            self._parked -= 1
            return self._resumed.popleft()
        while True:
            if not self._stack or self.inbox.top > self._stack[-1][0].priority:
                item = self.inbox.take(0)
                if item is not None:
                    self._open(item)
                    continue
                if not self._stack:
                    return None
            entry, items = self._stack[-1]
            found = next(items, None)
            if found is None:
                self._stack.pop()
            elif isinstance(found, Message):
                return found
            elif not entry.done >> found.index & 1 and found.error is not None:
                self._note.undecodable(found)
                self._make_dead_letter(entry, found.index, None, f"cannot be decoded: {found.error.reason}")

    def _open(self, item: Item) -> None:
        if isinstance(item, Marker):
            self._note.gap(item.gap.reason)
            return
        try:
            entry, items = self._decode(item)
        except (CannotDecode, msgspec.MsgspecError) as error:
            self._note.unreadable(item, error)
            return
        if items is None:
            return
        self._stack.append((entry, items))
        left = ((1 << entry.count) - 1) & ~entry.done
        if left:
            self._gaps.opened(entry.sequence)
        watermark = self.ownership.watermark
        if self._trail.records:
            again = entry.frame.again or watermark.before(entry.priority, entry.sequence)
            self._record("redelivered" if again else "delivered", entry, left)
        watermark.reach(entry.priority, entry.sequence)

    def _record(
        self, event: str, entry: EntryState, bits: int, *, reason: str | None = None, zxid: int | None = None
    ) -> None:
        """Tell the trail what became of messages of an entry, a bit for each."""
        self._trail.happened(event, self._note, self, entry, bits, zxid=zxid, reason=reason)

    def _decode(self, fetched: Fetched) -> tuple[EntryState, Iterator[Message | Undecodable] | None]:
        if fetched.entry.foreign:
            raise CannotDecode("not a name that zkms gives")
        if fetched.entry.gap:
            record = decode(fetched.raw, GapRecord)
            entry = EntryState(self, frames.Frame("", 0, 0.0, []), fetched, None)
            self._gaps.reach(entry, flag=record.full)
            self._note.gap(record.reason, partial(self._gaps.told, entry.sequence))
            if record.full:
                self._note.flagged()
            return entry, None
        if fetched.entry.body is not None and not fetched.raw:
            raise CannotDecode("the body it points to is missing")
        frame = frames.decode(fetched.raw)
        entry = EntryState(self, frame, fetched, self.ownership.parts.get(fetched.entry.sequence))
        return entry, self._decoder.messages_of(frame, entry, fetched)

    def _passes(self, message: Message) -> bool:
        """Whether a message may be delivered now; if not, it has been dealt with."""
        entry, index = message.entry, message.index
        if entry.done >> index & 1:
            return False
        if entry.is_expired(index):
            self._expire(entry, index)
            return False
        tried = entry.tries.get(index)
        if tried is not None and self._policy.is_last(tried.attempts) and not entry.is_ahead(index):
            entry.deliveries[index] = tried.attempts
            self._make_dead_letter(
                entry, index, message, _out_of_attempts(tried.attempts), tried.error or "its readers died"
            )
            return False
        scope = self._scope(message)
        if scope is not None and scope in self._scopes:
            first = self._scopes[scope].messages[0]
            if first[:2] < (entry.sequence, index):  # it waits for those before it only
                self._park(scope, message)
                return False
        if tried is not None and tried.due > time.time():
            self._failing += 1
            self._wait(scope, message, tried.due)
            return False
        return True

    def _scope(self, message: Message) -> str | None:
        return DURABLE if self._policy.kind == "durable" else message.key

    def _park(self, scope: str, message: Message) -> None:
        heapq.heappush(self._scopes[scope].messages, (message.entry.sequence, message.index, message))
        self._parked += 1

    def _wait(self, scope: str | None, message: Message, due: float) -> None:
        """Deliver a message again at `due`, seconds since 1970, and nothing else of its scope before."""
        when = time.monotonic() + max(0.0, due - time.time())
        if scope is None:
            self._parked += 1
            heapq.heappush(self._timers, (when, next(self._tickets), "", message))
            self.lock.notify_all()
            return
        blocked = self._scopes.setdefault(scope, _Scope())
        self._park(scope, message)
        if blocked.messages[0][2] is message:  # else one before it has to be waited for
            blocked.due, blocked.delivered = when, False
        heapq.heappush(self._timers, (blocked.due, next(self._tickets), scope, None))
        self.lock.notify_all()

    def _take_due(self) -> Message | None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, _, scope, message = heapq.heappop(self._timers)
            if message is not None:
                self._parked -= 1
                self._failing = max(0, self._failing - 1)
                if self._still_wanted(message):
                    return message
                continue
            blocked = self._scopes.get(scope)
            if blocked is None or blocked.delivered or blocked.due > now:
                continue  # of an earlier attempt
            first = blocked.messages[0][2]
            if self._still_wanted(first):
                blocked.delivered = True
                return first
            self._unblock(scope, blocked)
        return None

    def _still_wanted(self, message: Message) -> bool:
        entry, index = message.entry, message.index
        if entry.done >> index & 1:
            return False
        if entry.is_expired(index):
            self._expire(entry, index)
            return False
        return True

    def _expire(self, entry: EntryState, index: int) -> None:
        """A message has expired: it is done with."""
        self._record("expired", entry, 1 << index)
        entry.discarded |= 1 << index
        entry.finish((index,))
        self.store(entry)

    def _unblock(self, scope: str, blocked: _Scope) -> None:
        """The message that the others of its scope waited for is done with: they are next, up to one that fails too."""
        heapq.heappop(blocked.messages)
        self._parked -= 1
        self._failing = max(0, self._failing - 1)
        while blocked.messages:
            message = blocked.messages[0][2]
            entry: EntryState = message.entry
            tried = entry.tries.get(message.index)
            if entry.done >> message.index & 1:  # acked, by a caller that had several of the scope in flight
                heapq.heappop(blocked.messages)
                self._parked -= 1
                self._failing = max(0, self._failing - 1)
                continue
            if entry.is_in_flight(entry.latest.get(message.index, message)) and message.index in entry.latest:
                blocked.delivered = True  # still in flight with such a caller
                break
            if tried is not None and tried.due:
                blocked.due, blocked.delivered = time.monotonic() + max(0.0, tried.due - time.time()), False
                heapq.heappush(self._timers, (blocked.due, next(self._tickets), scope, None))
                break
            heapq.heappop(blocked.messages)
            self._resumed.append(message)
        else:
            del self._scopes[scope]
        self.lock.notify_all()

    def _deliver(self, message: Message) -> Message:
        entry, index = message.entry, message.index
        tried = entry.tries.get(index)
        if tried is not None:
            again = type(message)(message.data, entry, index)
            entry.latest[index] = again
            if index in entry.deliveries:
                self._record("redelivered", entry, 1 << index)
            entry.deliveries[index] = tried.attempts + (0 if entry.is_ahead(index) else 1)
            message = again
        self.in_flight += 1
        if self.ttr is not None:
            self._times.append((time.monotonic() + self.ttr, message))
        return message

    def _note_delivery(self, message: Message) -> Future[None] | None:
        """Note in the ledger that a message is delivered; the Future to wait for before it is, if there is need."""
        self._careful -= 1
        entry, index = message.entry, message.index
        if entry.noted >> index & 1 and entry.deliveries.get(index, 1) == 1:
            return None
        tried = entry.tries.get(index)
        if tried is not None:
            entry.tries[index] = Try(entry.deliveries[index], error=tried.error)
            entry.noted |= 1 << index
        else:
            last = min(index + AHEAD, entry.count)
            for each in range(index, last):
                if each in entry.tries:
                    last = each
                    break
                entry.tries[each] = Try(1)
            entry.noted |= (1 << last) - (1 << index)
            entry.deliveries[index] = 1  # the others are only noted: see is_ahead
        return self.ownership.mark(entry, wait=True)

    # -- taking back ---------------------------------------------------------------------------------------------

    def acked(self, entry: EntryState, message: Message, *, wait: bool) -> Future[None] | None:
        """Commit the ack of a message that its entry has noted, with the lock held; the Future, if asked for."""
        self._settled(message)
        return self.store(entry, wait=wait)

    def store(self, entry: EntryState, *, wait: bool = False) -> Future[None] | None:
        """Commit what is done with of an entry, with the lock held; if that is all of it, gaps behind it may go too."""
        stored = self.ownership.mark(entry, wait=wait)
        if entry.done == (1 << entry.count) - 1:
            self._gaps.finished(entry.sequence)
        return stored

    def unflagged(self) -> None:
        """The full flag is cleared, so gaps need not stay on its account. With the lock held."""
        self._gaps.unflagged()

    def _settled(self, message: Message) -> None:
        """A message is acked: it is no longer in flight, and the next one of its scope may be delivered."""
        self._no_longer_in_flight()
        self.handled += 1
        if self._scopes:
            self._advance(message)

    def set_done(self, messages: list[Message]) -> None:
        """Note that these messages are done with, for a transaction that commits it; raise if one is not in flight."""
        with self.lock:
            for message in messages:
                message.entry.check(message)
            for message in messages:
                message.entry.done |= 1 << message.index

    def end_transaction(self, messages: list[Message], stored: bool) -> None:
        """The transaction of `set_done` is over: its messages are done with if it was stored, else in flight again."""
        with self.lock:
            for message in messages:
                if stored:
                    message.entry.finish((message.index,))
                    self._settled(message)
                    if message.entry.complete:
                        self._gaps.finished(message.entry.sequence)
                else:
                    message.entry.done &= ~(1 << message.index)

    def stored(self, entry: EntryState, places: int, zxid: int | None) -> None:
        """Acks are stored: a bit for each message."""
        self._record("acked", entry, places, zxid=zxid)

    def settle_all(self, entry: EntryState, messages: list[Message]) -> None:
        """Note the ack of many messages of one entry, with the lock held; `store` is to follow."""
        if self._scopes:
            for message in messages:
                entry.finish((message.index,))
                self._settled(message)
            return
        entry.finish([message.index for message in messages])
        self._no_longer_in_flight(len(messages))
        self.handled += len(messages)

    def _no_longer_in_flight(self, count: int = 1) -> None:
        """Count so many messages as no longer in flight."""
        self.in_flight -= count
        if self.crowded:
            self.crowded = False
            self.lock.notify_all()

    def put_back(self, message: Message) -> None:
        """A message that was taken reached nobody: it is the next one again. With the lock held."""
        entry, index = message.entry, message.index
        if self.lost is not None or not entry.is_in_flight(message):
            return
        self._no_longer_in_flight()
        self._times = deque(each for each in self._times if each[1] is not message)
        entry.deliveries.pop(index, None)  # it stays noted in the ledger
        scope = self._scope(message)
        blocked = None if scope is None else self._scopes.get(scope)
        if scope is not None and blocked is not None and blocked.messages[0][:2] == (entry.sequence, index):
            blocked.due, blocked.delivered = time.monotonic(), False
            heapq.heappush(self._timers, (blocked.due, next(self._tickets), scope, None))
        else:
            self._resumed.appendleft(message)
            self._parked += 1

    def _advance(self, message: Message) -> None:
        """A message is done with: deliver those of its scope that waited for it."""
        scope = self._scope(message)
        blocked = None if scope is None else self._scopes.get(scope)
        if scope is None or blocked is None or not blocked.messages:
            return
        if blocked.messages[0][1] != message.index or blocked.messages[0][0] != message.entry.sequence:
            return
        self._unblock(scope, blocked)

    def fail_quietly(self, message: Message, error: str) -> None:
        """A handler raised: deliver the message again, if it is in flight. Nobody waits until that is stored."""
        entry: EntryState = message.entry
        with self.lock:
            if self.lost is None and entry.is_in_flight(message):
                self.failed(entry, message, error, None)

    def failed(self, entry: EntryState, message: Message, error: str, delay: float | None) -> Future[None] | None:
        """Deliver a message in flight again after a while, or make it a dead letter; with the lock held."""
        index, attempts = message.index, entry.attempts(message.index)
        if self._policy.is_last(attempts):
            self._no_longer_in_flight()
            return self._make_dead_letter(entry, index, message, _out_of_attempts(attempts), error)
        due = time.time() + (self._policy.pause(attempts) if delay is None else delay)
        entry.tries[index] = Try(attempts, due, error[:LONGEST_ERROR])
        entry.touched.pop(index, None)
        self._no_longer_in_flight()
        self._record("nacked", entry, 1 << index, reason=error or None)
        scope = self._scope(message)
        blocked = None if scope is None else self._scopes.get(scope)
        place = blocked.place(entry.sequence, index) if blocked is not None else None
        if blocked is not None and place:  # it waits for others of its scope already
            blocked.messages[place] = (entry.sequence, index, message)
            return self.ownership.mark(entry, wait=True)
        if blocked is not None and place == 0:
            heapq.heappop(blocked.messages)  # it is put back as the first below
            self._parked -= 1
        else:
            self._failing += 1
        self._wait(scope, message, due)
        return self.ownership.mark(entry, wait=True)

    def rejected(self, entry: EntryState, message: Message, reason: str) -> Future[None] | None:
        """Make a message in flight a dead letter, with the lock held."""
        self._no_longer_in_flight()
        return self._make_dead_letter(entry, message.index, message, reason)

    def _make_dead_letter(
        self, entry: EntryState, index: int, message: Message | None, reason: str, error: str = ""
    ) -> Future[None] | None:
        """Note that a message is done with, and commit that together with a dead letter of it."""
        frame = self._alone(entry, index)
        letter = encode(DeadLetter(frame, reason, time.time(), entry.attempts(index), error[:LONGEST_ERROR]))
        entry.discarded |= 1 << index
        entry.add_dead_letter(index, Create(self._letter_path(len(letter)), letter, sequence=True))
        entry.finish((index,))
        self._record("dead", entry, 1 << index, reason=reason or None)
        if message is not None and self._scopes:
            self._advance(message)
        return self.store(entry, wait=True)

    def _alone(self, entry: EntryState, index: int) -> bytes:
        """One message as a frame of its own."""
        raw = msgspec.msgpack.encode(entry.frame.data[index])
        extra = None if entry.extras is None else entry.extras[index]
        packed = Packed(raw, len(raw), entry.frame.codec, None if extra is None else msgspec.msgpack.encode(extra))
        number = index if entry.numbers is None else entry.numbers[index]
        return frames.encode(entry.producer, entry.seq, entry.published_at, [packed], [number], entry.topic)

    def time_out(self) -> bool:
        """Fail the messages that have been in flight for longer than their time to run; True if there were any."""
        found = False
        now = time.monotonic()
        while self._times and self.lost is None:
            deadline, message = self._times[0]
            entry: EntryState = message.entry
            index = message.index
            if not entry.is_in_flight(message):
                self._times.popleft()
                continue
            if deadline > now:
                break
            self._times.popleft()
            prolonged = entry.touched.get(index, 0.0)
            if prolonged > now:
                self._times.append((prolonged, message))
                continue
            found = True
            self.failed(entry, message, f"{LATE} {self.ttr:g} s", None)
        return found

    def drop(self) -> None:
        """The partition is not ours any more: forget all that was fetched."""
        with self.lock:
            for entry, _ in self._stack:
                entry.latest.clear()
            for _, message in self._times:
                message.entry.latest.clear()
            self._gaps.clear()
            self._stack.clear()
            self._resumed.clear()
            self._scopes.clear()
            self._timers.clear()
            self._times.clear()
        self.inbox.close(discard=True)


def _out_of_attempts(attempts: int) -> str:
    return f"not done in {attempts} attempt{'s' if attempts != 1 else ''}"
