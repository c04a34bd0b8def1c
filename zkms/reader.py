"""Reads one queue: watch, list, get pipelined, hand over in order. Runs on the bus's reader loop only.

A listing is taken only when everything of the last one has been fetched, so a deep backlog is listed once, not at every
event. ZooKeeper counts the creates in a queue: if there were more than we find new entries, somebody removed some
before we read them, and that becomes a gap event, never silence.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from zkms.errors import Closed, ConnectionLost, NodeMissing, StoreError
from zkms.inbox import Fetched, Gap, Inbox, Marker
from zkms.loop import Loop
from zkms.session import Session, Stat, State
from zkms.tree import Entry, parse_entry

log = logging.getLogger("zkms.reader")
T = TypeVar("T")
RETRY_AFTER = 0.5
WINDOW = 32
"""Gets in flight for one queue at the most."""


class Reader:
    """Moves the entries of a queue into an inbox."""

    def __init__(
        self,
        session: Session,
        loop: Loop,
        queue: str,
        inbox: Inbox,
        *,
        body: Callable[[str, int], str],
        miss: Callable[[str], Gap],
        lost: Callable[[], None],
    ) -> None:
        self.queue = queue
        self._session = session
        self._loop = loop
        self._inbox = inbox
        self._body = body
        self._gap = miss
        self._lost = lost
        self._created = 0
        """How many entries had been created, ever, when we last listed."""
        self._known: set[str] = set()
        """The names found then."""
        self._listed: deque[Entry] = deque()
        self._in_flight: deque[Entry] = deque()
        self._round = 0
        """Grows when what is in flight has become void, so that late answers are known as such."""
        self._missing = False
        """Whether the entry fetched last was gone: what else of the same listing is gone belongs to the same gap."""
        self._changed = True
        self._listing = False
        self._closed = False
        self._retrying = False

    def wake(self) -> None:
        """The queue may have changed."""
        self._changed = True
        self.advance()

    def reconnected(self) -> None:
        """Watches and requests of the old connection are void: begin again at the first entry not fetched."""
        self._begin_again()
        self.wake()

    def _begin_again(self) -> None:
        self._round += 1
        self._listing = False
        unread = [*self._in_flight, *self._listed]
        self._known -= {entry.name for entry in unread}
        self._created -= len(unread)
        self._in_flight.clear()
        self._listed.clear()
        self._changed = True

    def close(self) -> None:
        """Read no more."""
        self._closed = True

    def advance(self) -> None:
        """Fetch while there is room; list when everything listed has been fetched."""
        if self._closed or self._session.state is not State.CONNECTED:
            return
        ahead = sum(e.messages for e in self._in_flight), sum(e.size for e in self._in_flight)
        while self._listed and len(self._in_flight) < WINDOW and self._inbox.room(*ahead):
            entry = self._listed.popleft()
            ahead = ahead[0] + entry.messages, ahead[1] + entry.size
            self._in_flight.append(entry)
            path = f"{self.queue}/{entry.name}" if entry.body is None else self._body(*entry.body)
            self._ask(self._session.get_async(path), self._fetched)
        if self._changed and not self._listing and not self._listed:
            self._changed, self._listing = False, True
            watch = self._round
            self._ask(
                self._session.children_async(self.queue, lambda: self._loop.post(self._rung, watch)), self._enlist
            )

    def _rung(self, round: int) -> None:
        if round == self._round:
            self.wake()

    def _ask(self, reply: Future[T], then: Callable[[Future[T]], None]) -> None:
        current = self._round

        def step(answer: Future[T]) -> None:
            if current == self._round and not self._closed:
                then(answer)

        reply.add_done_callback(lambda answer: self._loop.post(step, answer))

    def _enlist(self, reply: Future[tuple[list[str], Stat]]) -> None:
        self._listing = False
        self._missing = False  # what this listing shows may be younger than the last gap
        try:
            names, stat = reply.result()
        except NodeMissing:
            self._lost()
            return
        except (ConnectionLost, Closed):
            self._changed = True
            self._try_later()
            return
        except StoreError as error:  # not allowed, say: whoever may change that must not have to restart us
            log.error("cannot list %s, trying on: %s", self.queue, error)
            self._changed = True
            self._try_later()
            return
        # ZooKeeper reports 2 * creates - children, as an int32. Every create counts, a stranger's too.
        created = ((stat.cversion + stat.numChildren) & 0xFFFFFFFF) // 2
        new = sorted(parse_entry(name) for name in set(names) - self._known)
        missing = created - self._created - len(new)
        if missing > 0:
            self._miss(f"{missing} entries were removed before they were read")
        # A number that was not given yet is forged, and must not hide the entry that will get it.
        self._listed.extend(e._replace(foreign=True) if e.sequence >= created else e for e in new)
        self._known, self._created = set(names), created
        self.advance()

    def _fetched(self, reply: Future[tuple[bytes, Stat]]) -> None:
        try:
            raw, _ = reply.result()
        except (ConnectionLost, Closed):
            self._begin_again()  # at this entry: the answers behind it, if they come, belong to others
            self._try_later()
            return
        except NodeMissing:
            entry = self._in_flight.popleft()
            if entry.body is not None:  # the pointer may be there still: whoever unpacks it will see
                self._inbox.put(Fetched(entry, f"{self.queue}/{entry.name}", b""))
            if not self._missing:  # a purge takes thousands at once: that is one gap, not thousands
                self._missing = True
                self._miss("entries were removed before they were read")
        except StoreError as error:
            entry = self._in_flight.popleft()
            log.error("cannot read %s/%s: %s", self.queue, entry.name, error)
            self._miss(f"an entry could not be read: {error}")
        else:
            entry = self._in_flight.popleft()
            self._missing = False
            self._inbox.put(Fetched(entry, f"{self.queue}/{entry.name}", raw))
        self.advance()

    def _try_later(self) -> None:
        """A new connection calls reconnected(); a server that timed out or is throttled keeps the old one."""
        if self._session.state is State.CONNECTED and not self._retrying:
            self._retrying = True
            timer = threading.Timer(RETRY_AFTER, lambda: self._loop.post(self._retry))
            timer.daemon = True
            timer.start()

    def _retry(self) -> None:
        self._retrying = False
        if not self._closed:
            self.reconnected()

    def _miss(self, reason: str) -> None:
        self._inbox.put(Marker(self._gap(reason)))
