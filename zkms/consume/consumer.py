"""A durable subscription or a member of a group: reads the partitions that it owns, and acks message by message.

A durable subscription has one partition, read by one process at a time. A group has many, and its members share them as
`group_member` says. Each partition that we own has an ownership (the fence), a reader, an inbox and a dispatcher;
whoever takes messages, the handler's thread or the caller of get(), goes round the dispatchers.

Threads: `zkms-member-TOPIC` keeps us a member, claims and releases partitions, and takes back messages whose time to
run is over; the handler has `zkms-deliver-TOPIC`.
"""

from __future__ import annotations

import builtins
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

from zkms.checks import Codec, check_seconds
from zkms.consume.claim import Claim
from zkms.consume.dispatcher import CAREFUL, Dispatcher
from zkms.consume.entry_state import RETURNED, EntryState
from zkms.consume.group_member import GroupMember
from zkms.consume.ledger_commits import Ownership, first_after
from zkms.consume.retry_policy import RetryPolicy
from zkms.context import Context
from zkms.deliver.inbox import Fetched, Gap, Inbox
from zkms.deliver.live import ACKED_WITHIN, AckMode, Handler, OnError, OnGap
from zkms.deliver.quarantine import set_aside
from zkms.deliver.reader import Reader
from zkms.errors import (
    CannotDecode,
    Closed,
    InvalidArgument,
    LostOwnership,
    NotSubscribed,
    SubscriptionInUse,
    ZkmsError,
)
from zkms.message.decode import Decoder, Undecodable
from zkms.message.message import Message, Replier
from zkms.subscribe.durable_registration import DurableRegistration
from zkms.subscribe.live_registration import LiveRegistration
from zkms.tree.full_flag import FullFlag
from zkms.tree.paths import queues_of
from zkms.tree.records import Registration
from zkms.zookeeper.session import State

log = logging.getLogger("zkms.consume")
LONGEST_RUN = 64
"""Messages of one partition in a row before it is the next one's turn, for a handler."""
PACE_OVER = 16
"""Messages over which the handler's pace is averaged, about."""


class Alarm(threading.Condition):
    """A Condition that also tells one who does not wait in it.

    `heard`, if it is set, is called at each notification, with the lock held. It must not wait.
    """

    heard: Callable[[], None] | None = None

    def notify(self, n: int = 1) -> None:
        """Wake so many of those who wait; notify_all() comes here too."""
        super().notify(n)
        if self.heard is not None:
            self.heard()


class Consumer:
    """What bus.subscribe() returns for a name or a group: close() keeps its place, unsubscribe() gives it up."""

    def __init__(
        self,
        context: Context,
        live_registration: LiveRegistration,
        durable_registration: DurableRegistration,
        ended: Callable[[Consumer], None],
        topic: str,
        handler: Handler | None,
        *,
        name: str,
        registration: Registration,
        created: bool,
        policy: RetryPolicy,
        prefetch: int,
        ack: AckMode | None,
        type: Any,
        codec: Codec | None,
        on_gap: OnGap | None,
        on_error: OnError | None,
        make: builtins.type[Message] = Message,
        replies: Replier | None = None,
    ) -> None:
        self.topic = topic
        self.id = name
        self.kind: str = registration.kind
        self.limit = registration.limit
        self.max_bytes = registration.max_bytes
        self.created = created
        """Whether this call made the subscription; it may have been there before."""
        self._context = context
        self._session = context.session
        self._tree = context.tree
        self._trail = context.trail
        self._patience = context.config.request_timeout
        self._durable_registration = durable_registration
        self._ended = ended
        self._handler = handler
        self._manual = ack == "manual"
        self._auto = ack == "auto"
        self._decoder = Decoder(topic, type, codec, make, replies)
        self._policy = policy
        self._prefetch = prefetch
        self._on_gap = on_gap
        self._on_error = on_error
        self._dispatchers: dict[int, Dispatcher] = {}
        self._readers: dict[int, Reader] = {}
        self._queues = queues_of(name, registration)
        self._turn = 0
        self._run = 0
        """Which partition is next, and how many of its messages were delivered in a row."""
        self._lock = Alarm()
        self._news: deque[Callable[[], object]] = deque()
        """What the user's callbacks are to be told, by whoever takes the next message."""
        self._told: deque[Callable[[], None]] = deque()
        """Of the gaps among them that were announced: what is to be called once the user knows."""
        self._unreadable: deque[tuple[Fetched, Exception]] = deque()
        self._closed = False
        self._removed = False
        """Whether another process has given the subscription up."""
        self._full: FullFlag | None = None
        """The full flag that is to be cleared."""
        self._vanished: set[int] = set()
        """Partitions whose queue is not there."""
        self._handling: Message | None = None
        self._began = 0.0
        self._handled = 0
        self._before: Future[None] | None = None
        """When it is done, the first half of the messages that may be handled and not stored is stored."""
        self.pace = 0.0
        """Seconds that a message takes our handler, averaged over the last ones."""
        self._thread: threading.Thread | None = None
        self._unreleased: list[Ownership] = []
        """Partitions that are to be released, and could not be yet."""
        self._member = GroupMember(context, live_registration, topic, name, registration, self)
        self._member.ttr = policy.ttr or self._member.ttr

    def __repr__(self) -> str:
        what = f"partitions {self.partitions}" if self.kind == "group" else "durable"
        return f"<Consumer {self.id} of {self.topic!r}, {what}{' (closed)' if self._closed else ''}>"

    @property
    def partitions(self) -> list[int]:
        """The partitions that are ours to read, now."""
        dispatchers = list(self._dispatchers.items())
        return sorted(number for number, each in dispatchers if each.lost is None and not each.leaving)

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, *, takeover: bool) -> None:
        """Become a reader, and begin; `SubscriptionInUse` if another process reads a durable one."""
        try:
            self._member.join()
            owner = self._member.claim_alone(takeover) if self.kind == "durable" else None
            if owner is not None:
                raise SubscriptionInUse(self.topic, self.id, owner)
        except BaseException:  # a member that does not read would be waited for
            self._member.leave()
            raise
        self._member.start()
        if self._handler is not None:
            self._thread = threading.Thread(target=self._deliver, name=f"zkms-deliver-{self.topic}", daemon=True)
            self._thread.start()

    def close(self, timeout: float = 5.0) -> None:
        """Stop reading, and keep the place: finish the message in flight, and leave the rest to be delivered again.

        A handler that is still busy after `timeout` seconds is left behind, and its message is delivered again.
        """
        if self._stop(check_seconds("timeout", timeout)):
            self._ended(self)

    def unsubscribe(self, timeout: float = 5.0) -> None:
        """Give the subscription up, with all that waits in it. A group goes with its last member."""
        if not self._stop(check_seconds("timeout", timeout)):
            raise NotSubscribed(self.topic)
        self._ended(self)
        try:
            # Where our leaving takes its time, we may still be a member.
            zxid = self._durable_registration.unregister(self.topic, self.id, unless_used_by=self._context.client_id)
            self._trail.note("unsubscribed", sub=self.id, topic=self.topic, kind=self.kind, zxid=zxid)
        except SubscriptionInUse:
            if self.kind == "durable":
                raise
            log.info("%s of %r has other members: left, not removed", self.id, self.topic)

    def abandon(self, timeout: float) -> None:
        """Stop without ZooKeeper, which does not answer."""
        self._stop(timeout)

    def _stop(self, timeout: float) -> bool:
        self._session.check_process()
        if self._closed:
            return False
        deadline = time.monotonic() + timeout
        self._closed = True
        with self._lock:
            for dispatcher in self._dispatchers.values():
                dispatcher.leaving = True
            self._lock.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
            if thread.is_alive():
                log.warning("the handler of %r is still busy after %g s: left behind", self.topic, timeout)
        self._member.close(max(0.1, deadline - time.monotonic()))
        return True

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def reconnected(self) -> None:
        """On the connection's thread: the connection is a new one."""
        for number, dispatcher in list(self._dispatchers.items()):
            dispatcher.ownership.reconnected()
            reader = self._readers.get(number)
            if reader is not None:  # else it is being released
                reader.start()
        for ownership in list(self._unreleased):
            ownership.reconnected()
        self._member.reconnected()
        with self._lock:
            self._lock.notify_all()  # what was fetched was not delivered while we were cut off

    # -- partitions, as the member claims and releases them --------------------------------------------------------

    def begin(self, number: int, path: str, claimed: Claim) -> None:
        """A partition is ours: read it."""
        ownership = Ownership(self._session, path, claimed, lambda reason: self._lost(number, reason))
        inbox = Inbox(self._prefetch, lambda: self._drained(number))
        dispatcher = Dispatcher(
            self.topic,
            number,
            ownership,
            inbox,
            self._decoder,
            self._policy,
            self._lock,
            partial(self._tree.dead_letter, self.id, self.topic),
            self,
            self._context,
            careful=not claimed.clean,
            parking=self._prefetch,
            patience=self._patience,
        )
        inbox.arrived = self._ring
        queue = self._tree.queue(self._queues[number], self.topic)
        reader = Reader(
            self._session,
            queue,
            inbox,
            body=self._tree.body,
            miss=lambda reason: Gap(self.topic, self.id, reason),
            lost=lambda: self._vanish(number),
            worn=lambda: log.error(
                "the numbers of %s come to their end: let it be empty once, and subscribe anew", queue
            ),
            listed=ownership.forget,
            fresh=False,
        )
        ownership.is_there = reader.knows
        if not ownership.watermark.known:
            ownership.watermark.doubtful = self._doubtful(queue, claimed, reader)
        self._trail.note(
            "subscribed",
            sub=self.id,
            topic=self.topic,
            kind=self.kind,
            partition=number,
            epoch=ownership.since,
            zxid=claimed.zxid,
        )
        with self._lock:
            self._dispatchers[number], self._readers[number] = dispatcher, reader
        self._session.post(reader.start)
        log.info("%s reads partition %d of %s (epoch %d)", self._context.client_id, number, self.id, ownership.epoch)

    def _doubtful(self, queue: str, claimed: Claim, reader: Reader) -> Callable[[], int | None]:
        """Which entries the former owner may have delivered, as it did not release the partition."""
        if not claimed.ended:
            return lambda: reader.inherited
        first = first_after(self._session, queue, claimed.ended)
        return lambda: first

    def _vanish(self, number: int) -> None:
        """On the connection's thread: the partition's queue is not there."""
        self._vanished.add(number)
        self._member.wake.set()

    def _repair(self) -> None:
        """Make queues anew that another program has removed: what was in them is missed, which is a gap."""
        while self._vanished:
            number = self._vanished.pop()
            if number in self._dispatchers:
                self.end(number, 0.0)
            if self._durable_registration.remake(self.topic, self.id, number, self._queues[number]):
                with self._lock:
                    self.gap("the queue was removed by somebody else")
                    self._lock.notify_all()

    def end(self, number: int, timeout: float) -> None:
        """A partition is to be released: store what is done with, and let the next one have it.

        If ZooKeeper does not answer, that is for later; one that is closed then is no member any more, which does too.
        """
        with self._lock:
            dispatcher, reader = self._dispatchers.pop(number), self._readers.pop(number)
            dispatcher.leaving = True
        self._session.post(reader.close)
        if dispatcher.lost is None and not self._release(dispatcher.ownership, timeout):
            self._unreleased.append(dispatcher.ownership)
        dispatcher.drop()

    def release_rest(self) -> None:
        """Release what could not be released before: while we are a member, nobody else may claim it."""
        self._unreleased = [ownership for ownership in self._unreleased if not self._release(ownership, 0.0)]

    def _release(self, ownership: Ownership, timeout: float) -> bool:
        return self._session.state is State.CONNECTED and ownership.drain(timeout) and ownership.release()

    @property
    def dispatchers(self) -> dict[int, Dispatcher]:
        """The dispatchers of the partitions that we own, by partition."""
        return self._dispatchers

    def _lost(self, number: int, reason: str) -> None:
        """A partition is lost: the member's thread ends it. On any thread."""
        log.warning("partition %d of %s is lost: %s", number, self.id, reason)
        self._member.wake.set()

    def _drained(self, number: int) -> None:
        reader = self._readers.get(number)
        if reader is not None:
            self._session.post(reader.advance)

    def _ring(self) -> None:
        with self._lock:
            self._lock.notify()

    # -- pull ----------------------------------------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None after `timeout` seconds without one (0 looks once, None waits on).

        It has to be acked: message.ack().
        """
        messages = self.fetch(1, timeout)
        return messages[0] if messages else None

    def fetch(self, count: int, timeout: float | None = None) -> list[Message]:
        """Up to `count` messages: waits for the first as get() does, and takes what is there besides."""
        if not isinstance(count, int) or count < 1:
            raise InvalidArgument(f"fetch: count must be a whole number of at least 1, not {count!r:.60}")
        if timeout is not None:
            timeout = check_seconds("timeout", timeout)
        self._check_pull()
        deadline = None if timeout is None else time.monotonic() + timeout
        taken = some = self._next_some(count, deadline)
        while some and len(taken) < count:
            some = self._more(count - len(taken))
            taken += some
        if not taken and self._removed:
            raise NotSubscribed(self.topic)
        if self._auto:
            for message in taken:
                self.finish(message)
        return taken

    def ack(self, messages: Iterable[Message], *, wait: bool = True) -> None:
        """Ack many messages at once, which takes about as long as one; returns when that is stored.

        With `wait=False` it is stored soon, as a handler's acks are: if this process dies before, they come again.
        """
        for message, stored in self.start_acks(messages):
            if wait:
                message.entry.wait_until_stored(stored, message)

    def start_acks(self, messages: Iterable[Message]) -> list[tuple[Message, Future[None] | None]]:
        """Ack messages without waiting; a Future for each entry, and one of its messages for error texts."""
        lots: dict[int, list[Message]] = {}
        for message in messages:
            lots.setdefault(id(message.entry), []).append(message)
        with self._lock:
            for lot in lots.values():
                lot[0].entry.check_all(lot)
            stored = []
            for lot in lots.values():
                entry: EntryState = lot[0].entry
                dispatcher: Dispatcher = lot[0].entry.dispatcher
                dispatcher.settle_all(entry, lot)
                stored.append((lot[0], dispatcher.store(entry, wait=True)))
        return stored

    def __iter__(self) -> Iterator[Message]:
        """Messages until the subscription is closed; each is acked when the loop comes back for the next."""
        self._check_pull()
        while (message := self._next(None)) is not None:
            yield message
            if not self._manual:
                self.finish(message)
        if self._removed:
            raise NotSubscribed(self.topic)

    def _check_pull(self) -> None:
        self._session.check_process()
        if self._handler is not None:
            raise InvalidArgument(
                f"{self.topic!r} has a handler, which gets the messages; subscribe without one to pull"
            )
        if self._closed:
            raise NotSubscribed(self.topic)

    # -- push ----------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        handler = self._handler
        while handler is not None and (message := self._next(None)) is not None:
            self.begins(message)
            problem: BaseException | None = None
            try:
                handler(message)
            except BaseException as error:  # noqa: BLE001 - the user's code
                problem = error
            _wait(self.ends(message, problem), self._patience)

    # What follows is also for zkms.aio, which takes and handles messages on its event loop.

    def begins(self, message: Message) -> None:
        """The handler gets a message."""
        self._handling, self._began = message, time.monotonic()

    def ends(self, message: Message, error: BaseException | None) -> Future[None] | None:
        """The handler has returned, or raised; what has to be stored before it gets the next message, if anything."""
        if error is not None:
            self._failed(message, error)
        elif not self._manual:
            self.finish(message)
        self._handling = None
        self.pace += (time.monotonic() - self._began - self.pace) / PACE_OVER
        self._handled += 1
        if self._handled % (CAREFUL // 2):  # no more than CAREFUL may be handled and not stored
            return None
        before, self._before = self._before, message.entry.dispatcher.ownership.mark(message.entry, wait=True)
        return before

    @property
    def closed(self) -> bool:
        """Whether it delivers nothing more."""
        return self._closed

    @property
    def gone(self) -> bool:
        """Whether another process has given the subscription up."""
        return self._removed

    def listen(self, heard: Callable[[], None]) -> None:
        """Call this whenever there may be something to take; from any thread, and it must not wait."""
        self._lock.heard = heard

    def take_at_once(self, most: int = 1) -> tuple[list[Message], Future[None] | None]:
        """The next messages, if there are any, and what has to be stored before they are delivered, if anything."""
        with self._lock:
            some, stored = self._take(most)
        self._tell_news()
        return some, stored

    def put_back(self, messages: Iterable[Message]) -> None:
        """Messages that were taken reached nobody: they are the next ones again."""
        with self._lock:
            for message in reversed(list(messages)):
                message.entry.dispatcher.put_back(message)
            self._lock.notify_all()

    def next_due(self) -> float | None:
        """Seconds until a message that waits for its time may be taken."""
        with self._lock:
            return self._until_due(None)

    def _failed(self, message: Message, error: BaseException) -> None:
        problem = error if isinstance(error, Exception) else RuntimeError(repr(error))
        dispatcher: Dispatcher = message.entry.dispatcher
        dispatcher.fail_quietly(message, f"{type(error).__name__}: {error}")
        self._report(problem, message)

    def finish(self, message: Message) -> None:
        """Ack a message that was handled, unless the user has acked or failed it; that is stored soon."""
        try:
            message.entry.start_ack(message, wait=False)
        except ZkmsError as error:
            if isinstance(error, LostOwnership) and error.reason != RETURNED:
                self._report(error, message)
            # Acked, or failed, by the user: that counts.

    # -- taking --------------------------------------------------------------------------------------------------

    def _next(self, deadline: float | None) -> Message | None:
        some = self._next_some(1, deadline)
        return some[0] if some else None

    def _next_some(self, most: int, deadline: float | None) -> list[Message]:
        """The next messages, at least one and up to `most`; none at the deadline, or if we are closed."""
        while True:
            self._tell_first()
            with self._lock:
                some, stored = self._take(most)
                if not some and not self._news:
                    if self._closed:
                        return []
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return []
                    self._lock.wait(self._until_due(left))
                    continue
            if some and (stored is None or self._is_noted(some[0], stored)):
                try:
                    self._tell_first()
                except BaseException:  # a callback that wants to exit
                    self.put_back(some)
                    raise
                return some

    def _more(self, most: int) -> list[Message]:
        """More messages for a caller that has some already; none where callbacks have to be called first."""
        if self._news:
            return []
        with self._lock:
            some, stored = self._take(most)
        if not some or (not self._news and (stored is None or self._is_noted(some[0], stored))):
            return some
        self.put_back(some)
        return []

    def _is_noted(self, message: Message, stored: Future[None]) -> bool:
        """Wait until the ledger says that a message is delivered; False if its partition was lost meanwhile."""
        while not _wait(stored, self._patience):
            if message.entry.dispatcher.lost is not None or self._closed:
                return False
        return True

    def _room(self) -> int:
        """How many messages may be delivered now; whoever makes room notifies the lock."""
        if self._closed or self._session.state is not State.CONNECTED:
            return 0  # cut off, we may have been replaced
        dispatchers = self._dispatchers.values()
        room = self._prefetch - sum([dispatcher.in_flight for dispatcher in dispatchers])
        if room < 1:
            for dispatcher in dispatchers:
                dispatcher.crowded = True
        return room

    def _take(self, most: int) -> tuple[list[Message], Future[None] | None]:
        """The next messages, at most so many, and what has to be stored before they are delivered."""
        dispatchers = list(self._dispatchers.values())
        most = min(most, self._room())
        if most < 1:
            return [], None
        for step in range(len(dispatchers)):
            dispatcher = dispatchers[(self._turn + step) % len(dispatchers)]
            some, stored = dispatcher.take_some(most)
            if some:
                self._turn = (self._turn + step) % len(dispatchers)
                self._run += 1
                if self._run >= LONGEST_RUN or not self._handler:
                    self._turn, self._run = self._turn + 1, 0
                return some, stored
        return [], None

    def _until_due(self, left: float | None) -> float | None:
        if self._room() < 1:
            return left
        due = [when for dispatcher in self._dispatchers.values() if (when := dispatcher.next_due()) is not None]
        if due:
            soon = max(0.0, min(due) - time.monotonic()) + 0.001
            left = soon if left is None else min(left, soon)
        return left

    def tend(self) -> bool:
        """On the member's thread: fail what was in flight for too long; True if our handler is stuck."""
        late = False
        with self._lock:
            for dispatcher in list(self._dispatchers.values()):
                late = dispatcher.time_out() or late
            if late:
                self._lock.notify_all()
        if self._full is not None and self._session.state is State.CONNECTED:
            self._clear_flag()
        if self._vanished and self._session.state is State.CONNECTED:
            self._repair()
        while self._unreadable:
            self._set_aside(*self._unreadable.popleft())
        handling = self._handling
        return handling is not None and not handling.entry.is_in_flight(handling) and not self._is_done(handling)

    def _is_done(self, message: Message) -> bool:
        return bool(message.entry.done >> message.index & 1)

    def removed(self) -> None:
        """On the member's thread: another process has given the subscription up, so nothing will come any more."""
        self._tell_error(NotSubscribed(self.topic), None)
        for number in list(self._dispatchers):
            self.end(number, 0.0)
        with self._lock:
            self._removed = self._closed = True
            self._lock.notify_all()
        self._ended(self)

    # -- what dispatchers tell -------------------------------------------------------------------------------------

    def gap(self, reason: str, told: Callable[[], None] | None = None) -> None:
        """Something may have been missed; `told` is called when the user knows."""
        log.warning("%s of %r may have missed messages: %s", self.id, self.topic, reason)
        self._trail.note("gap", sub=self.id, topic=self.topic, kind=self.kind, reason=reason)
        if self._on_gap is not None:
            self._news.append(partial(self._announce, self._on_gap, Gap(self.topic, self.id, reason), told))
        elif told is not None:
            told()

    def _announce(self, on_gap: OnGap, gap: Gap, told: Callable[[], None] | None) -> None:
        try:
            on_gap(gap)
        finally:
            if told is not None:
                self._told.append(told)

    def told(self) -> None:
        """The user knows of all gaps that were announced, so their entries need not stay. Also called by zkms.aio."""
        if self._told:
            with self._lock:
                while self._told:
                    self._told.popleft()()

    def flagged(self) -> None:
        """All that came before the full flag is delivered: the member's thread clears it."""
        self._full = FullFlag(self._session, self._tree, self.topic, self.id)
        self._member.wake.set()

    def _clear_flag(self) -> None:
        with self._lock:
            flag, self._full = self._full, None  # the next gap's may come while we are at it
        if flag is None:
            return
        for dispatcher in list(self._dispatchers.values()):
            dispatcher.ownership.drain(ACKED_WITHIN)  # or they would find it full still
        try:
            flag.clear()
        except ZkmsError:
            with self._lock:
                self._full = self._full or flag
            raise
        with self._lock:
            if self._full is None:  # else one has come to another such gap meanwhile
                for dispatcher in self._dispatchers.values():
                    dispatcher.unflagged()

    def unreadable(self, fetched: Fetched, error: Exception) -> None:
        """An entry that is not ours, or damaged: the member's thread sets it aside."""
        self._unreadable.append((fetched, error))
        self._member.wake.set()

    def undecodable(self, problem: Undecodable) -> None:
        """A message that cannot become what the subscriber asked for."""
        if problem.error is not None:
            self._tell_error(problem.error, None)

    def _set_aside(self, fetched: Fetched, error: Exception) -> None:
        try:
            kept = set_aside(self._session, self._tree, fetched.path, fetched.raw)
        except ZkmsError as failure:
            log.warning("%s cannot be set aside, left where it is: %s", fetched.path, failure)
            kept = fetched.path
        self._trail.set_aside(self.id, self.topic, fetched.entry, str(error), self.kind)
        fate = "dropped" if kept is None else f"kept as {kept}"
        self._tell_error(CannotDecode(f"{error}; {fate}", path=fetched.path, raw=fetched.raw), None)
        self._ring()

    # -- the user's callbacks ------------------------------------------------------------------------------------

    def _report(self, error: Exception, message: Message | None) -> None:
        self._tell_error(error, message)
        self._tell_news()

    def _tell_error(self, error: Exception, message: Message | None) -> None:
        log.warning("%r: %s: %s", self.topic, type(error).__name__, error, exc_info=None if message is None else error)
        if self._on_error is not None:
            self._news.append(partial(self._on_error, error, message))

    def _tell_first(self) -> None:
        """Call the user's callbacks before the messages that were taken after what they tell of."""
        if self._news:
            self._tell_news()
        self.told()

    def _tell_news(self) -> None:
        while self._news:
            try:
                callback = self._news.popleft()
            except IndexError:
                return
            try:
                callback()
            except BaseException as error:
                if not isinstance(error, Exception) and threading.current_thread() is not self._thread:
                    raise  # a caller of get() that wants to exit
                log.exception("%s of %r raised", callback, self.topic)


def _wait(stored: Future[None] | None, seconds: float) -> bool:
    """Whether it is stored; False if that cannot be told, or never will be."""
    if stored is None:
        return True
    try:
        stored.result(seconds)
    except (TimeoutError, Closed, ZkmsError):
        return False
    return True
