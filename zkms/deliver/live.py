"""A live subscription: delivers the entries of its queue to a handler, or to the caller of get().

The reader fills the inbox; a delivery thread (with a handler) or the caller of get/fetch/iterate takes from it.
Messages, gaps and what cannot be read come in one order, because all of them are entries of the queue.
"""

from __future__ import annotations

import builtins
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

import msgspec

from zkms.checks import Codec, check_seconds
from zkms.context import Context
from zkms.deliver.acks import Acks
from zkms.deliver.decode_turns import DecodeTurn
from zkms.deliver.inbox import Fetched, Gap, Inbox, Item, Marker
from zkms.deliver.quarantine import set_aside
from zkms.deliver.reader import Reader
from zkms.errors import (
    CannotDecode,
    ConnectionLost,
    InvalidArgument,
    NotSubscribed,
    ZkmsError,
)
from zkms.message.decode import DecodedEntry, Decoder, Undecodable
from zkms.message.message import LiveEntry, Message, Replier
from zkms.tree.full_flag import FullFlag
from zkms.tree.records import GapRecord, Registration, decode

log = logging.getLogger("zkms.deliver")
Handler = Callable[[Message], object]
OnGap = Callable[[Gap], object]
OnError = Callable[[Exception, Message | None], object]
AckMode = Literal["auto", "manual"]
ACKED_WITHIN = 1.0
"""Seconds to wait for acks under way before a queue is called drained."""


class KeepsRegistered(Protocol):
    """What a live subscription needs of those who keep it registered."""

    def repair(self, subscription: Subscription) -> None:
        """Its queue is gone: it gets a new one."""
        ...

    def renumber(self, subscription: Subscription) -> None:
        """The numbers of its queue come to their end: it gets a new one when it is empty."""
        ...


class Subscription:
    """What bus.subscribe() returns; close it with unsubscribe(), or leave a `with` block."""

    def __init__(
        self,
        context: Context,
        acks: Acks,
        live_registration: KeepsRegistered,
        ended: Callable[[Subscription], None],
        topic: str,
        handler: Handler | None,
        *,
        id: str,
        registration: Registration,
        prefetch: int,
        ack: AckMode,
        type: Any,
        codec: Codec | None,
        on_gap: OnGap | None,
        on_error: OnError | None,
        make: builtins.type[Message] = Message,
        replies: Replier | None = None,
    ) -> None:
        self.topic = topic
        self.id = id
        self.registration = registration
        """What publishers know of it."""
        self.limit = registration.limit
        self.max_bytes = registration.max_bytes
        self.created = True
        """Whether subscribe() made it; a durable one may have been there before."""
        self.seen = ("", 0)
        """A queue, and how many of the entries that it ever had the handler has dealt with."""
        self._reached = self.seen
        self._session = context.session
        self._tree = context.tree
        self._trail = context.trail
        self._acks = acks
        self._live_registration = live_registration
        self._ended = ended
        self._handler = handler
        self._manual = ack == "manual"
        self._decoder = Decoder(topic, type, codec, make, replies)
        self._on_gap = on_gap
        self._on_error = on_error
        self._closed = False
        self._inbox = Inbox(prefetch, self._drained)
        self._reader: Reader | None = None
        self._decoded: deque[Message | Undecodable] = deque()
        self._entry: LiveEntry
        self._taking = threading.Lock()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Subscription {self.id} to {self.topic!r}{' (closed)' if self._closed else ''}>"

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read; called once, when the registration stands."""
        self._read()
        if self._handler is not None:
            self._thread = threading.Thread(target=self._deliver, name=f"zkms-deliver-{self.topic}", daemon=True)
            self._thread.start()

    def unsubscribe(self, timeout: float = 5.0) -> None:
        """Give the subscription up: finish the message in flight, then remove the registration and the queue.

        A handler that is still busy after `timeout` seconds is left behind.
        """
        if self._stop(check_seconds("timeout", timeout)):
            self._ended(self)

    close = unsubscribe

    def _stop(self, timeout: float) -> bool:
        """Take no more messages and finish the one in flight; False if that was done before."""
        self._session.check_process()  # the locks below are the parent's
        if self._closed:
            return False
        self._closed = True
        if self._reader is not None:
            self._session.post(self._reader.close)
        self._inbox.close(discard=True)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
            if thread.is_alive():
                log.warning("the handler of %r is still busy after %g s: left behind", self.topic, timeout)
        self._acks.drain(timeout)
        return True

    def abandon(self, timeout: float) -> None:
        """Stop without ZooKeeper, which does not answer: the session's end and the cleaner do the rest."""
        if self._stop(timeout):
            self._trail.note("unsubscribed", sub=self.id, topic=self.topic, kind="live", reason="abandoned")

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.unsubscribe()

    def moved(self, id: str) -> None:
        """It was given a new queue: read that one from its start."""
        self._trail.moved(self.topic, self.id, id)
        self.id = id
        if self._reader is not None and not self._closed:
            self._session.post(self._reader.close)
            self._read()

    def reconnected(self) -> None:
        """On the connection's thread: the connection is a new one."""
        if self._reader is not None:
            self._reader.start()

    def _read(self) -> None:
        self._reader = Reader(
            self._session,
            self._tree.queue(self.id, self.topic),
            self._inbox,
            body=self._tree.body,
            miss=lambda reason: Gap(self.topic, self.id, reason),
            lost=lambda: self._live_registration.repair(self),
            worn=lambda: self._live_registration.renumber(self),
        )
        self._session.post(self._reader.start)

    def _drained(self) -> None:
        if self._reader is not None:
            self._session.post(self._reader.advance)

    # -- pull ----------------------------------------------------------------------------------------------------

    def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None after `timeout` seconds without one (0 looks once, None waits on)."""
        messages = self.fetch(1, timeout)
        return messages[0] if messages else None

    def fetch(self, count: int, timeout: float | None = None) -> list[Message]:
        """Up to `count` messages: waits for the first as get() does, and takes what is there besides."""
        if not isinstance(count, int) or count < 1:
            raise InvalidArgument(f"fetch: count must be a whole number of at least 1, not {count!r:.60}")
        if timeout is not None:
            timeout = check_seconds("timeout", timeout)
        self._check_pull()
        messages, entries = self._take(count, timeout)
        if not self._manual:
            for entry in entries:
                entry.finish()
        return messages

    def __iter__(self) -> Iterator[Message]:
        """Messages until the subscription is closed; each is acked when the loop comes back for the next."""
        self._check_pull()
        while True:
            messages, entries = self._take(1, None)
            if not messages:
                return
            yield messages[0]
            if not self._manual:
                for entry in entries:
                    entry.finish()

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
        if handler is None:
            return
        turn = DecodeTurn()
        try:
            while (decoded := self._next_entry(None, turn)) is not None:
                self._handle(handler, decoded)
                turn.end()
        finally:
            turn.end()

    def _handle(self, handler: Handler, decoded: DecodedEntry) -> None:
        for item in decoded.items:
            if self._closed:
                return
            if item.__class__ is not Message:  # as cheap as it gets: this runs for every message
                self.skip(decoded.entry, item)  # type: ignore[arg-type]
                continue
            try:
                handler(item)
            except BaseException as error:  # noqa: BLE001 - the user's code; a live message is not repeated
                self.report(error if isinstance(error, Exception) else RuntimeError(repr(error)), item)
                self._answer(item, error)
        self.seen = self._reached  # before the ack: who sees the entry gone may rely on it
        if not self._manual:
            decoded.entry.finish()

    def _answer(self, message: Message, error: BaseException) -> None:
        """Whoever asked hears that the handler raised, since the message is not repeated."""
        if message.is_request:
            try:
                message.reply(error=f"{type(error).__name__}: {error}")
            except ZkmsError as problem:
                log.warning("%r was not answered: %s", message, problem)

    # -- taking --------------------------------------------------------------------------------------------------

    def _take(self, count: int, timeout: float | None) -> tuple[list[Message], list[LiveEntry]]:
        """Up to `count` messages, and the entries of which that were the last ones."""
        deadline = None if timeout is None else time.monotonic() + timeout
        taken: list[Message] = []
        entries: list[LiveEntry] = []
        if not self._taking.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            return taken, entries
        try:
            while len(taken) < count and not self._closed:
                if not self._decoded:
                    left = 0.0 if taken else None if deadline is None else max(0.0, deadline - time.monotonic())
                    decoded = self._next_entry(left)
                    if decoded is None:
                        break
                    self._entry = decoded.entry
                    self._decoded.extend(decoded.items)
                item = self._decoded.popleft()
                if isinstance(item, Message):
                    taken.append(item)
                else:
                    self.skip(self._entry, item)
                if not self._decoded:
                    entries.append(self._entry)
        finally:
            self._taking.release()
        return taken, entries

    def _next_entry(self, timeout: float | None, turn: DecodeTurn | None = None) -> DecodedEntry | None:
        """The next entry that has messages; None after `timeout` seconds without one, or when closed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._closed:
            self.seen = self._reached
            item = self._inbox.take(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if item is None:
                return None
            if isinstance(item, Fetched) and not item.entry.foreign:
                self._reached = item.path.rpartition("/")[0], item.entry.sequence + 1
            if turn is not None and isinstance(item, Fetched):
                turn.begin(item.entry.messages)
            if (decoded := self.unpack(item)) is not None:
                return decoded
            if turn is not None:
                turn.end()
        return None

    # What follows is also for zkms.aio, which takes from the inbox on its event loop.

    @property
    def inbox(self) -> Inbox:
        """What the reader has fetched."""
        return self._inbox

    def unpack_at_once(self, item: Item) -> DecodedEntry | None:
        """The messages of an entry as nearly all are; None if it takes unpack(), which may wait for ZooKeeper."""
        if isinstance(item, Marker) or item.entry.foreign or item.entry.gap or not item.raw:
            return None
        try:
            return self._messages(item)
        except (CannotDecode, msgspec.MsgspecError):
            return None

    def unpack(self, item: Item) -> DecodedEntry | None:
        """An entry's messages; None if it has none: a gap is announced, what is not ours is set aside."""
        if self._closed:
            return None
        if isinstance(item, Marker):
            self._clear_full()  # the entry that flagged the queue may be among those removed
            self._announce(item.gap)
            return None
        return self._unpack(item)

    def _unpack(self, fetched: Fetched) -> DecodedEntry | None:
        try:
            if fetched.entry.foreign:
                raise CannotDecode("not a name that zkms gives")
            if fetched.entry.body is not None and not fetched.raw:
                if self._is_gone(fetched.path):
                    return None  # removed together: that was announced as a gap
                raise CannotDecode("the body it points to is missing")
            if fetched.entry.gap:
                self._reach_gap(fetched.path, decode(fetched.raw, GapRecord))
                return None
            return self._messages(fetched)
        except (CannotDecode, msgspec.MsgspecError) as error:
            self._set_aside(fetched, error)
            return None

    def _messages(self, fetched: Fetched) -> DecodedEntry:
        decoded = self._decoder.decode(fetched, self._acks.add)
        self._trail.delivered(self, decoded.entry, len(fetched.raw), fetched.entry.priority)
        return decoded

    def _is_gone(self, path: str) -> bool:
        try:
            return self._session.exists(path) is None
        except ZkmsError:
            return False

    def skip(self, entry: LiveEntry, problem: Undecodable) -> None:
        """A message that has expired, or cannot be decoded: that is reported when it is its turn. Done with."""
        if problem.error is None:
            self._trail.expired(self, entry, problem.index)
            entry.skip(problem.index)
            return
        self._trail.undecodable(self, entry, problem.index, str(problem.error))
        self.report(problem.error, None)
        entry.skip(problem.index)

    def _set_aside(self, fetched: Fetched, error: Exception) -> None:
        try:
            kept = set_aside(self._session, self._tree, fetched.path, fetched.raw)
        except ZkmsError as failure:
            log.warning("%s cannot be set aside, left where it is: %s", fetched.path, failure)
            kept = fetched.path
        self._trail.set_aside(self.id, self.topic, fetched.entry, str(error))
        fate = "dropped" if kept is None else f"kept as {kept}"
        self.report(CannotDecode(f"{error}; {fate}", path=fetched.path, raw=fetched.raw), None)

    def _reach_gap(self, path: str, record: GapRecord) -> None:
        if record.full:
            self._clear_full()
        self._announce(Gap(self.topic, self.id, record.reason))
        self._acks.add(path)  # after it was announced, as messages are acked after they were handled

    def _announce(self, gap: Gap) -> None:
        log.warning("%r may have missed messages: %s", gap.topic, gap.reason)
        self._trail.note("gap", sub=gap.subscription, topic=gap.topic, kind="live", reason=gap.reason)
        if self._on_gap is not None:
            self._tell(self._on_gap, gap)

    def _clear_full(self) -> None:
        """All that came before the flag has been taken: let publishers send again."""
        self._acks.drain(ACKED_WITHIN)  # or they would find the queue full still
        flag = FullFlag(self._session, self._tree, self.topic, self.id)
        while not self._closed:
            try:
                flag.clear()
                return
            except ConnectionLost as error:
                log.info("cannot clear the flag of %r yet: %s", self.topic, error)
            except ZkmsError as error:
                if not self._closed:
                    self.report(error, None)
                return

    def report(self, error: Exception, message: Message | None) -> None:
        """Log what went wrong with a message, or with an entry, and tell on_error."""
        log.warning("%r: %s: %s", self.topic, type(error).__name__, error, exc_info=None if message is None else error)
        if self._on_error is not None:
            self._tell(self._on_error, error, message)

    def _tell(self, callback: Callable[..., object], *args: object) -> None:
        try:
            callback(*args)
        except BaseException as error:
            if not isinstance(error, Exception) and threading.current_thread() is not self._thread:
                raise  # a caller of get() that wants to exit
            log.exception("%s of %r raised", callback, self.topic)
