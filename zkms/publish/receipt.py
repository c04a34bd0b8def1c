"""What became of a published message: who has acknowledged it, who has not yet, and who never will.

Nothing is watched until somebody asks. An entry that is gone was acked, unless its queue says that it was removed for
another reason: whoever removes entries otherwise writes the reason into the queue first.
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
"""Seconds that ZooKeeper has for an answer, however soon the caller wants to go on: wait(0) looks once."""


class Bell(Protocol):
    """What `look` needs of a Condition."""

    def __enter__(self) -> object: ...

    def __exit__(self, *exc: Any) -> object: ...

    def notify_all(self) -> None:
        """Wake who waits."""
        ...


class _Stored:
    """What is known of the transaction that put it where it is; shared by the receipts of one frame."""

    def __init__(self, zxid: int | None) -> None:
        self.zxid = zxid
        """If its reply came: an entry or queue made later is another's, whatever its name."""


class Receipt:
    """A message's way, one entry per subscription. `wait()` looks; the properties tell what was seen last."""

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
        """How many messages travelled together."""
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
        self._waiting: list[tuple[set[str], Bell]] = []
        """Who is to be told when a watch has fired."""
        self._watches: dict[str, Watch] = {}
        """Each of them the same in every look, so that a watch that is there already is not added again."""

    def at(self, place: int) -> Receipt:
        """The receipt of one of several messages that travelled together: they share their fate, not their number."""
        if place == 0:
            return self
        one = copy.copy(self)
        one.seq = self._first + place
        one._place = place
        return one

    def each(self) -> list[Receipt]:
        """One for each message that travelled; the same one, as long as there is nothing that tells them apart."""
        return [self.at(place) for place in range(self.count)] if self._duplicates else [self] * self.count

    @property
    def duplicate_of(self) -> str | None:
        """The message that was stored before under the id that was given; None if this is no duplicate."""
        return self._duplicates.get(self._place)

    @property
    def id(self) -> str:
        """The (first) message's id, unless the publisher gave it one."""
        return f"{self.producer}:{self.seq}"

    @property
    def acked(self) -> tuple[str, ...]:
        """Subscriptions that are done with it."""
        return tuple(self._acked)

    @property
    def pending(self) -> tuple[str, ...]:
        """Subscriptions that have it and did not ack yet."""
        return tuple(self._pending)

    @property
    def gone(self) -> Mapping[str, str]:
        """Subscriptions that will never ack, and why: purged, unsubscribed, queue full..."""
        return MappingProxyType(self._gone)

    @property
    def due(self) -> float | None:
        """When it is due, in seconds since the epoch, if it was published for later."""
        return None if self._delayed is None else self._delayed.due / 1000

    @property
    def delayed(self) -> bool:
        """Whether it was still waiting to become due when we last looked: who gets it is decided then."""
        return WAITING in self._pending

    def __repr__(self) -> str:
        return f"<Receipt {self.id}: {len(self._acked)} acked, {len(self._pending)} pending, {len(self._gone)} gone>"

    def wait(self, timeout: float | None = None) -> Receipt:
        """Return when nobody is pending any more, or after `timeout` seconds; then look at the properties.

        Raises `ConnectionLost` if ZooKeeper cannot be asked in that time.
        """
        deadline = None if timeout is None else time.monotonic() + check_seconds("timeout", timeout)
        return self.wait_until(deadline, ANSWER)

    def wait_until(self, deadline: float | None, answer: float = 0.0) -> Receipt:
        """wait(), by time.monotonic(); ZooKeeper has `answer` seconds for each answer, however near that is."""
        # Another thread may be looking on behalf of a message that travelled with this one: then it sees for both.
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

    def look(self, fired: set[str], wake: Bell, seconds: float | None) -> None:
        """Ask ZooKeeper about those in `fired`, which is emptied, and have `wake` rung when one of the rest is added.

        For zkms.aio, which does the waiting in between by itself, and has to leave() at the end. Raises
        `ConnectionLost` after so many seconds.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            self._locate(deadline)
            self._look(fired, wake, deadline)

    def leave(self, wake: Bell) -> None:
        """Ring `wake` no more."""
        self._waiting[:] = [each for each in self._waiting if each[1] is not wake]

    def _ring(self, name: str) -> None:
        for fired, wake in tuple(self._waiting):
            with wake:
                fired.add(name)
                wake.notify_all()

    def _look(self, fired: set[str], wake: Bell, deadline: float | None) -> None:
        """Ask for the entries whose watch fired, and for the queues of those that are gone."""
        if not any(each[1] is wake for each in self._waiting):
            self._waiting.append((fired, wake))
        with wake:
            names = sorted(fired & set(self._pending))
            fired.clear()

        paths = {name: path for name in names if (path := self._pending[name]) is not None}
        answer = partial(self._session.answer, deadline=deadline)
        for name in names:
            self._watches.setdefault(name, partial(self._ring, name))
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
        """Ask for an entry, or where we may not look at it for its name; watched for its end."""
        watch = self._watches[name]
        if self._session.rights is None:
            return partial(self._session.exists_async, path, watch)
        if name == WAITING and self._delayed is not None:
            return partial(self._session.exists_async, self._delayed.record(self._tree), watch)
        return partial(self._session.children_async, path.rpartition("/")[0], watch)

    def _is_there(self, name: str, answer: Callable[[], Any]) -> bool:
        """Whether an entry is still where it was put, by the answer to `_ask`."""
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
        """It was due, and has been moved: from here on, look at the queues that it was put into."""
        assert self._delayed is not None  # noqa: S101 - whatever waits has a place to wait in
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
        """Find entries whose paths were lost with the reply of their transaction, by producer and sequence number."""
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
    """Who got a message that was due; None if another program wrote that, or it names what is no queue."""
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
    """Why an entry is gone from a queue, judged by the queue's data; None means that it was acked."""
    try:
        state = decode(queue_data, QueueState)
    except msgspec.MsgspecError:
        return "its queue was overwritten by another program"
    if state.gone:
        return state.gone
    sequence = -1 if path is None else parse_entry(path.rsplit("/", 1)[1]).sequence
    return state.reason if sequence <= state.dropped and state.dropped >= 0 else None
