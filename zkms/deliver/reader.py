"""Reads one queue: hears of its entries, gets the data that their names do not carry, and puts them into the inbox.

A persistent watch names every entry as it is created, so a queue is listed only when reading begins, after a new
connection, and where numbers do not fit together: a delivery costs no listing, however deep the queue. A server that is
too old for such watches is asked for a listing with a watch, each time when everything of the last one is fetched.

ZooKeeper counts the creates in a queue: if there were more than we have heard of, somebody removed some before we read
them, and that becomes a gap event, never silence. All of it runs on the connection's thread and needs no locks.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from zkms.deliver.inbox import Fetched, Gap, Inbox, Marker, PriorityDeque
from zkms.errors import Closed, ConnectionLost, NodeMissing, Unsupported, ZkmsError
from zkms.tree.entry import Entry, carried, parse_entry
from zkms.zookeeper.recipes import count_created
from zkms.zookeeper.session import Session, State
from zkms.zookeeper.wire import CREATED, DELETED

log = logging.getLogger("zkms.deliver")
RETRY_AFTER = 0.5
WINDOW = 32
"""Gets in flight for one queue at the most."""
WORN_AT = 2_000_000_000
"""Entries after which a queue is to be replaced: ZooKeeper's numbers end at 2,147,483,647."""


class _Place:
    """A place in the order of delivery: filled at once with a gap or the data in a name, else by an answer."""

    __slots__ = ("entry", "item")

    def __init__(self, entry: Entry | Marker, item: Fetched | Marker | None) -> None:
        self.entry = entry
        self.item = item


class Reader:
    """Moves the entries of a queue into an inbox."""

    def __init__(
        self,
        session: Session,
        queue: str,
        inbox: Inbox,
        *,
        body: Callable[[str, int], str],
        miss: Callable[[str], Gap],
        lost: Callable[[], None],
        worn: Callable[[], None],
        listed: Callable[[set[int]], None] | None = None,
        fresh: bool = True,
    ) -> None:
        self.queue = queue
        self._session = session
        self._inbox = inbox
        self._body = body
        self._gap = miss
        self._lost = lost
        self._worn = worn
        self._listed = listed
        """Told the numbers of all that is there, whenever that is looked at."""
        self._created = 0
        """How many entries we know to have been created, ever."""
        self.inherited: int | None = None
        """Entries that were put there before we began to read; None before the first listing."""
        self._fresh = fresh
        """Whether nobody has read the queue before us, so that nothing of it can be missing."""
        self._made = 0
        """The transaction that made the queue; 0 before the first listing."""
        self._known: set[str] = set()
        """The names of those that are still there, as far as we know."""
        self._heard: PriorityDeque[Entry | Marker] = PriorityDeque()
        """Entries to take next, and the gaps between them."""
        self._places: deque[_Place] = deque()
        """Entries taken and not delivered, in order; the first one is waited for."""
        self._ahead = 0
        self._ahead_bytes = 0
        """Their messages and bytes."""
        self._round = 0
        """Grows when what is in flight has become void, so that late answers are known as such."""
        self._missing = False
        """Whether the entry fetched last was gone: what else was removed with it belongs to the same gap."""
        self._watched = False
        self._unlisted = True
        """Whether a listing is needed."""
        self._listing = False
        self._closed = False
        self._retrying = False
        self._woken = False

    def start(self) -> None:
        """Read from the first entry on; also after a new connection, whose server knows nothing of our watch."""
        self._begin_again()
        self._watched = False
        self.advance()

    def _begin_again(self) -> None:
        """At the first entry not delivered: answers that still come belong to a round that is over."""
        self._round += 1
        self._listing, self._unlisted = False, True
        while self._places:
            entry = self._places.pop().entry
            self._heard.appendleft(entry, 0 if isinstance(entry, Marker) else entry.priority)
        self._ahead = self._ahead_bytes = 0

    def close(self) -> None:
        """Read no more."""
        self._closed = True
        if self._watched and self._session.state is State.CONNECTED:
            self._session.watch_children_no_more(self.queue)

    def knows(self, path: str) -> bool:
        """Whether an entry that we have heard of may be there still; from any thread."""
        return path.rpartition("/")[2] in self._known

    def advance(self) -> None:
        """Take entries while there is room; list if need be."""
        if self._closed or self._session.state is not State.CONNECTED:
            return
        self._take()
        if self._unlisted and not self._listing and not (self._session.old_server and self._heard):
            self._list()

    # -- hearing of entries --------------------------------------------------------------------------------------

    def _list(self) -> None:
        self._unlisted, self._listing = False, True
        current = self._round
        if not self._watched and not self._session.old_server:
            self._watched = True
            self._session.watch_children(self.queue, self._rung, self._answer(self._watching))
        watch = (lambda: self._changed(current)) if self._session.old_server else None
        self._session.call_children(self.queue, self._answer(self._enlist), watch)

    def _answer(self, then: Callable[[Any, ZkmsError | None], None]) -> Callable[[Any, ZkmsError | None], None]:
        current = self._round

        def done(value: Any, error: ZkmsError | None) -> None:
            if current == self._round and not self._closed:
                then(value, error)

        return done

    def _watching(self, _value: Any, error: ZkmsError | None) -> None:
        if isinstance(error, Unsupported):
            log.info("this ZooKeeper is older than 3.6: queues are listed at each change")
            self._session.old_server = True
            self.start()
        elif error is not None and not isinstance(error, ConnectionLost | Closed):
            log.error("cannot watch %s, trying on: %s", self.queue, error)
            self._watched, self._unlisted = False, True
            self._try_later()

    def _changed(self, current: int) -> None:
        if current == self._round and not self._closed:
            self._unlisted = True
            self.advance()

    def _rung(self, kind: int, name: str) -> None:
        """An event of the persistent watch. While a listing is asked for, its answer will tell all of it."""
        if self._closed:
            self._session.watch_children_no_more(self.queue)
            return
        if not name:
            if kind == DELETED:
                self._lost()
            return
        if self._listing or self._unlisted:
            return
        if kind == DELETED:
            self._known.discard(name)
            return
        if kind != CREATED or name in self._known:
            return
        entry = parse_entry(name)
        if not entry.foreign and entry.sequence != self._created:  # a number that is not the next: look
            self._unlisted = True
        else:
            self._created += 1
            self._known.add(name)
            self._heard.append(entry, entry.priority)
        if not self._woken:  # after all that has arrived with it: what was removed meanwhile is not delivered
            self._woken = True
            self._session.post(self._wake)

    def _wake(self) -> None:
        self._woken = False
        if self._created >= WORN_AT:
            self._worn()
        self.advance()

    def _enlist(self, value: Any, error: ZkmsError | None) -> None:
        self._listing = False
        self._missing = False  # what this listing shows may be younger than the last gap
        if isinstance(error, NodeMissing):
            self._lost()
            return
        if error is not None:
            if not isinstance(error, ConnectionLost | Closed):
                # Not allowed, say: whoever may change that must not have to restart us.
                log.error("cannot list %s, trying on: %s", self.queue, error)
            self._unlisted = True
            self._try_later()
            return
        names, stat = value
        created = count_created(stat)  # also what others than publishers created
        if self._made not in (0, stat.czxid):
            self._known, self._created = set(), 0
            self._heard.clear()
            self._heard.append(self._marker("the queue was removed and made again by somebody else"))
        elif created < self._created:  # a server that lags behind what the last one has told us
            self._unlisted = True
            self._try_later()
            return
        if self._made == 0 and not self._fresh:
            self._created, self.inherited = created - len(names), created
        self._made = stat.czxid
        new = sorted(parse_entry(name) for name in set(names) - self._known)
        missing = created - self._created - len(new)
        if missing > 0:
            self._heard.append(self._marker(f"{missing} entries were removed before they were read"))
        # A number that was not given yet is forged, and must not hide the entry that will get it.
        self._heard.extend((e._replace(foreign=True) if e.sequence >= created else e, e.priority) for e in new)
        self._known, self._created = set(names), created
        if self._listed is not None:
            self._listed({parse_entry(name).sequence for name in names})
        if created >= WORN_AT:
            self._worn()
        self.advance()

    # -- taking them ---------------------------------------------------------------------------------------------

    def _take(self) -> None:
        while self._heard and len(self._places) < WINDOW and self._inbox.room(self._ahead, self._ahead_bytes):
            entry = self._heard.popleft()
            if isinstance(entry, Marker):
                self._mark(entry)
                continue
            path = f"{self.queue}/{entry.name}"
            if entry.carrier and not entry.foreign:
                if entry.name not in self._known:
                    self._removed(self._mark)
                    continue
                self._missing = False
                fetched = Fetched(entry, path, carried(entry.name))
                if not self._places:
                    self._inbox.put(fetched)
                    continue
                place = _Place(entry, fetched)
            else:
                place = _Place(entry, None)
                self._session.call_get(path if entry.body is None else self._body(*entry.body), self._fetched(entry))
            self._places.append(place)
            self._ahead += entry.messages
            self._ahead_bytes += entry.size

    def _mark(self, marker: Marker) -> None:
        """Put a gap into the inbox behind all that is being fetched."""
        if self._places:
            self._places.append(_Place(marker, marker))
        else:
            self._inbox.put(marker)

    def _fetched(self, entry: Entry) -> Callable[[Any, ZkmsError | None], None]:
        def done(value: Any, error: ZkmsError | None) -> None:
            path = f"{self.queue}/{entry.name}"
            if isinstance(error, ConnectionLost | Closed):
                self._begin_again()
                self._try_later()
                return
            self._pop()
            if error is None:
                self._missing = False
                self._inbox.put(Fetched(entry, path, value[0]))
            elif isinstance(error, NodeMissing):
                if entry.body is not None:  # the pointer may be there still: whoever unpacks it will see
                    self._inbox.put(Fetched(entry, path, b""))
                self._removed(self._inbox.put)
            else:
                log.error("cannot read %s: %s", path, error)
                self._inbox.put(self._marker(f"an entry could not be read: {error}"))
            while self._places and (item := self._places[0].item) is not None:
                self._pop()
                self._inbox.put(item)
            self.advance()

        return self._answer(done)

    def _pop(self) -> None:
        entry = self._places.popleft().entry
        if not isinstance(entry, Marker):
            self._ahead -= entry.messages
            self._ahead_bytes -= entry.size

    def _try_later(self) -> None:
        """A new connection starts us again; a server that timed out or is throttled keeps the old one."""
        if self._session.state is State.CONNECTED and not self._retrying:
            self._retrying = True
            timer = threading.Timer(RETRY_AFTER, lambda: self._session.post(self._retry))
            timer.daemon = True
            timer.start()

    def _retry(self) -> None:
        self._retrying = False
        if not self._closed:
            self.start()

    def _removed(self, put: Callable[[Marker], None]) -> None:
        if not self._missing:  # a purge takes thousands at once: that is one gap, not thousands
            self._missing = True
            put(self._marker("entries were removed before they were read"))

    def _marker(self, reason: str) -> Marker:
        return Marker(self._gap(reason))
