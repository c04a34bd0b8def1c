"""The receipt of a published message: which subscriptions have acked it, which have not yet, and which never will.

Nothing is watched until somebody waits. A missing entry was acked, unless its queue names another reason: whoever
removes entries without an ack writes the reason into the queue first.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from zkms.checks import check_seconds
from zkms.errors import CannotDecode, ConnectionLost, NodeMissing, Unauthorised
from zkms.message import frame as frames
from zkms.tree.delayed_names import BUCKET, KEEP, WAITING, Delayed
from zkms.tree.entry import carried, parse_entry
from zkms.tree.paths import Tree
from zkms.tree.records import Moved, QueueState, decode
from zkms.zookeeper.session import Session
from zkms.zookeeper.wire import Watch

LOST = "its queue is gone"
UNSEEN = "its entry cannot be told from others: the reply of its transaction was lost, and it is not ours to read"
LONG_AGO = "it was due long ago, and who got it is not known any more"
ANSWER = 1.0
"""Seconds that ZooKeeper has for an answer, however short the caller's timeout is: wait(0) looks once."""


class Wakeable(Protocol):
    """The part of a Condition that `look` needs."""

    def __enter__(self) -> object: ...

    def __exit__(self, *exc: Any) -> object: ...

    def notify_all(self) -> None:
        """Wake the waiting caller."""
        ...


class _Stored:
    """The transaction that stored the entries; the receipts of one frame share it."""

    def __init__(self, zxid: int | None) -> None:
        self.zxid = zxid
        """None if its reply was lost. An entry or queue created later is another one, even if it has the same name."""


class Receipt:
    """Says which subscriptions have acked a message. `wait()` looks; the properties say what was seen last."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        topic: str,
        *,
        producer: str,
        seq: int,
        count: int,
        entries: Mapping[str, str | None],
        skipped: Mapping[str, str],
        zxid: int | None = None,
        queues: Mapping[str, str] = MappingProxyType({}),
        duplicates: Mapping[int, str] = MappingProxyType({}),
        delayed: Delayed | None = None,
    ) -> None:
        self.topic = topic
        self.producer = producer
        self.seq = seq
        """Number of the message, or of the first one if this is the receipt of several."""
        self.count = count
        """How many messages shared the frame."""
        self._first = seq
        self._place = 0
        self._queues = dict(queues)
        self._duplicates = duplicates
        self._session = session
        self._tree = tree
        self._pending: dict[str, str | None] = dict(entries)
        self._acked: list[str] = []
        self._gone: dict[str, str] = dict(skipped)
        self._stored = _Stored(zxid)
        self._delayed = delayed
        if delayed is not None:
            self._pending[WAITING] = delayed.path(tree)
        self._lock = threading.Lock()
        self._waiting: list[tuple[set[str], Wakeable]] = []
        """Callers to wake when a watch fires."""
        self._watches: dict[str, Watch] = {}
        """By name; the same object in every look, so that an existing watch is not added again."""

    def at(self, place: int) -> Receipt:
        """Return the receipt of one message of the frame: it differs in its number only."""
        if place == 0:
            return self
        one = copy.copy(self)
        one.seq = self._first + place
        one._place = place
        return one

    def each(self) -> list[Receipt]:
        """Return a receipt for each message of the frame; it is the same one unless there are duplicates."""
        return [self.at(place) for place in range(self.count)] if self._duplicates else [self] * self.count

    @property
    def duplicate_of(self) -> str | None:
        """The id of the message that was stored before under the given id; None if this is no duplicate."""
        return self._duplicates.get(self._place)

    @property
    def id(self) -> str:
        """The id of the (first) message, unless the publisher gave it one."""
        return f"{self.producer}:{self.seq}"

    @property
    def acked(self) -> tuple[str, ...]:
        """Subscriptions that have acked it."""
        return tuple(self._acked)

    @property
    def pending(self) -> tuple[str, ...]:
        """Subscriptions that have it and have not acked it yet."""
        return tuple(self._pending)

    @property
    def gone(self) -> Mapping[str, str]:
        """Subscriptions that will never ack it, and why: purged, unsubscribed, queue full..."""
        return MappingProxyType(self._gone)

    @property
    def due(self) -> float | None:
        """When it is due, in seconds since the epoch, if it was published for later."""
        return None if self._delayed is None else self._delayed.due / 1000

    @property
    def delayed(self) -> bool:
        """Whether it was not due yet at the last look; its subscriptions are chosen when it is due."""
        return WAITING in self._pending

    def __repr__(self) -> str:
        return f"<Receipt {self.id}: {len(self._acked)} acked, {len(self._pending)} pending, {len(self._gone)} gone>"

    def wait(self, timeout: float | None = None) -> Receipt:
        """Return when no subscription is pending, or after `timeout` seconds; then read the properties.

        Raises `ConnectionLost` if ZooKeeper does not answer in that time.
        """
        deadline = None if timeout is None else time.monotonic() + check_seconds("timeout", timeout)
        return self.wait_until(deadline, ANSWER)

    def wait_until(self, deadline: float | None, answer: float = 0.0) -> Receipt:
        """Like wait(), until a time.monotonic(); ZooKeeper has at least `answer` seconds for each answer."""
        # Another thread may be waiting for a message of the same frame: what it sees is seen for both.
        if not self._lock.acquire(timeout=-1 if deadline is None else max(0.0, deadline - time.monotonic())):
            return self
        try:
            self._watch(deadline, answer)
        finally:
            self._lock.release()
        return self

    def _watch(self, deadline: float | None, answer: float) -> None:
        fired: set[str] = set(self._pending)
        wake = threading.Condition()
        try:
            self._watch_until(deadline, answer, fired, wake)
        finally:
            self.leave(wake)

    def _watch_until(self, deadline: float | None, answer: float, fired: set[str], wake: threading.Condition) -> None:
        while self._pending:
            try:
                answered_by = None if deadline is None else max(deadline, time.monotonic() + answer)
                self._locate(answered_by)
                self._look(fired, wake, answered_by)
            except ConnectionLost:
                fired.update(self._pending)  # the watches went with the connection
                if deadline is not None and time.monotonic() >= deadline:
                    raise
                continue
            if not self._pending:
                break
            with wake:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                if not fired:
                    wake.wait(left)

    def look(self, fired: set[str], wake: Wakeable, seconds: float | None) -> None:
        """Ask ZooKeeper about the subscriptions in `fired` and empty it; notify `wake` when a watch adds one again.

        For zkms.aio, which waits in between by itself and calls leave() at the end. Raises `ConnectionLost` after
        `seconds`.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            self._locate(deadline)
            self._look(fired, wake, deadline)

    def leave(self, wake: Wakeable) -> None:
        """Stop notifying `wake`."""
        self._waiting[:] = [each for each in self._waiting if each[1] is not wake]

    def _notify(self, name: str) -> None:
        for fired, wake in tuple(self._waiting):
            with wake:
                fired.add(name)
                wake.notify_all()

    def _look(self, fired: set[str], wake: Wakeable, deadline: float | None) -> None:
        """Read the entries whose watch fired, and the queues of those that are missing."""
        if not any(each[1] is wake for each in self._waiting):
            self._waiting.append((fired, wake))
        with wake:
            names = sorted(fired & set(self._pending))
            fired.clear()

        paths = {name: path for name in names if (path := self._pending[name]) is not None}
        answer = partial(self._session.answer, deadline=deadline)
        for name in names:
            self._watches.setdefault(name, partial(self._notify, name))
        asks = {name: self._ask(name, path) for name, path in paths.items()}
        asked = {name: ask() for name, ask in asks.items()}
        removed = [name for name in asks if not self._is_there(name, partial(answer, asked[name], asks[name]))]
        if WAITING in removed:
            removed.remove(WAITING)
            self._follow(deadline)
            with wake:
                fired.update(name for name, path in self._pending.items() if path is None)
        gets = {name: partial(self._session.get_async, paths[name].rsplit("/", 1)[0]) for name in removed}
        queues = {name: get() for name, get in gets.items()}
        for name, reply in queues.items():
            try:
                data, stat = answer(reply, gets[name])
                made = self._stored.zxid
                reason = LOST if made is not None and stat.czxid > made else removal(data, paths[name])
            except NodeMissing:
                reason = LOST
            self._settle(name, reason)

    def _ask(self, name: str, path: str) -> Callable[[], Future[Any]]:
        """Return the read of an entry, or of its queue's names if we may not read the entry; it sets a watch."""
        watch = self._watches[name]
        if self._session.rights is None:
            return partial(self._session.exists_async, path, watch)
        if name == WAITING and self._delayed is not None:
            return partial(self._session.exists_async, self._delayed.record(self._tree), watch)
        return partial(self._session.children_async, path.rpartition("/")[0], watch)

    def _is_there(self, name: str, answer: Callable[[], Any]) -> bool:
        """Whether an entry still exists, by the answer to `_ask`."""
        made = self._stored.zxid
        if self._session.rights is None:
            stat = answer()
            return stat is not None and made in (None, stat.czxid)
        if name == WAITING and self._delayed is not None:
            return answer() is None and time.time() < self._delayed.due / 1000 + BUCKET + KEEP
        try:
            names, queue = answer()
        except NodeMissing:
            return False
        return (made is None or queue.czxid <= made) and str(self._pending[name]).rpartition("/")[2] in names

    def _follow(self, deadline: float | None) -> None:
        """Look at the queues from now on: the message was due, and has been moved there."""
        assert self._delayed is not None  # noqa: S101 - only a delayed message waits
        try:
            data, stat = self._session.get(self._delayed.record(self._tree), deadline=deadline)
            moved = moved_to(self._tree, data)
        except NodeMissing:
            moved = None
        if moved is None:
            self._settle(WAITING, LONG_AGO)
            return
        del self._pending[WAITING]
        self._stored.zxid = stat.czxid
        self._queues.update(moved.queues)
        self._pending.update(dict.fromkeys(moved.queues))
        self._gone.update(moved.gone)

    def _settle(self, name: str, reason: str | None) -> None:
        del self._pending[name]
        if reason is None:
            self._acked.append(name)
        else:
            self._gone[name] = reason

    def _locate(self, deadline: float | None) -> None:
        """Find the entries of a transaction whose reply was lost, by producer and sequence number."""
        for name in [name for name, path in self._pending.items() if path is None]:
            queue = self._queues.get(name) or self._tree.queue(name, self.topic)
            try:
                state, _ = self._session.get(queue, deadline=deadline)
                found = self._find(queue, deadline)
            except NodeMissing:
                self._settle(name, LOST)
                continue
            except Unauthorised:
                self._settle(name, UNSEEN)
                continue
            if found is None:
                self._settle(name, removal(state, None))
            else:
                self._pending[name] = found

    def _find(self, queue: str, deadline: float | None) -> str | None:
        for entry in sorted(map(parse_entry, self._session.children(queue, deadline=deadline)[0])):
            path = f"{queue}/{entry.name}"
            if entry.body == (self.producer, self._first):
                return path
            if entry.foreign or entry.gap or (entry.body is not None and self._delayed is None):
                continue
            read = path if entry.body is None else self._tree.body(*entry.body)
            try:
                raw = self._session.get(read, deadline=deadline)[0] if not entry.carrier else carried(entry.name)
                frame = frames.decode(raw)
            except (NodeMissing, CannotDecode):
                continue
            if (frame.producer, frame.seq) == (self.producer, self._first):
                return path
        return None


def moved_to(tree: Tree, data: bytes) -> Moved | None:
    """Decode the record of the queues that a due message was moved to; None if another program wrote it."""
    try:
        moved = decode(data, Moved)
    except msgspec.MsgspecError:
        return None
    below = f"{tree.messages}/"
    for path in moved.queues.values():
        levels = path.removeprefix(below).split("/")
        if not path.startswith(below) or len(levels) != 2 or {"", ".", ".."} & {*levels}:
            return None
    return moved


def removal(queue_data: bytes, path: str | None) -> str | None:
    """Return why an entry was removed, by the data of its queue; None if it was acked."""
    try:
        state = decode(queue_data, QueueState)
    except msgspec.MsgspecError:
        return "its queue was overwritten by another program"
    if state.gone:
        return state.gone
    sequence = -1 if path is None else parse_entry(path.rsplit("/", 1)[1]).sequence
    return state.reason if sequence <= state.dropped and state.dropped >= 0 else None
