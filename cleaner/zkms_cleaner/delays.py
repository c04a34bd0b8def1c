"""The leader's view of delayed messages: keeps the near buckets in a timing wheel, and moves what is due.

A bucket is loaded when it comes within the horizon. From then on a watch reports every frame that is added to it.
Besides, all near buckets are looked at every second, and all names in `delayed/` whenever one was created or deleted:
so a lost wake-up, or a publisher whose clock is behind, costs seconds at the most. A bucket is removed when all of it
is moved and nobody needs to know any more who got what.

Thread: zkms-due. Watches and the cleaner's own thread only set flags for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from zkms.deliver.quarantine import set_aside
from zkms.errors import Closed, ConnectionLost, NodeMissing, NotEmpty, TransactionFailed, Unsupported, ZkmsError
from zkms.trail.hooks import Recorder
from zkms.tree.delayed_names import BUCKET, KEEP, Delayed, is_record, parse_bucket, parse_delayed
from zkms.tree.paths import Tree
from zkms.zookeeper.deletion import delete_children
from zkms.zookeeper.operations import Delete
from zkms.zookeeper.recipes import read_many
from zkms.zookeeper.session import Session, State, failed_with
from zkms.zookeeper.wire import CREATED
from zkms_cleaner.due import READ_AT_ONCE, Mover
from zkms_cleaner.election import Lead
from zkms_cleaner.wheel import Wheel

log = logging.getLogger("zkms.cleaner")
HORIZON = 30.0
"""Seconds from now: a bucket that begins before that is near."""
SCAN = 1.0
SCAN_OLD = 0.1
"""Seconds between two looks at the near buckets; the latter where the server has no persistent watches."""
SCAN_SHARE = 10
"""A look that took long is repeated after so many times as long."""
RETRY = 5.0
PAUSE = 0.5


class _Bucket:
    """What is known of a near bucket."""

    def __init__(self) -> None:
        self.watched = False
        self.listed = -1
        """Its count of changes when it was listed; -1 if it was not."""
        self.waiting = 0
        """Frames in it when it was listed."""


class DelayedView:
    """Moves delayed messages into the queues when they are due, as long as we lead."""

    def __init__(
        self,
        session: Session,
        tree: Tree,
        *,
        trail: Recorder | None = None,
        lost: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._session = session
        self._tree = tree
        self._lost = lost
        self._clock = clock
        self._mover = Mover(session, tree, trail=trail, clock=clock)
        self._wheel: Wheel[Delayed] = Wheel(clock())
        self._known: set[Delayed] = set()
        """What is in the wheel, or due and not moved yet."""
        self._ready: deque[Delayed] = deque()
        self._near: dict[int, _Bucket] = {}
        self._heard: deque[tuple[int, str]] = deque()
        self._listed = -1
        self._scan_at = 0.0
        self._look = True
        """Whether to look at the near buckets at once."""
        self._lapsed = True
        """Whether the connection has changed: the watches of the old one are gone."""
        self._lead: Lead | None = None
        self._led = ""
        self._closed = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zkms-due", daemon=True)
        session.listen(self._session_changed)

    def __len__(self) -> int:
        """How many frames are in memory."""
        return len(self._known)

    def start(self) -> None:
        """Start the thread; it waits for set_lead()."""
        self._thread.start()

    def set_lead(self, lead: Lead | None) -> None:
        """Say that we lead from now on, or no more."""
        before, self._lead = self._lead, lead
        if (before is None) != (lead is None) or (before and lead and before.path != lead.path):
            self._wake.set()

    def close(self, timeout: float = 5.0) -> None:
        """Finish the transaction under way, and end."""
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _session_changed(self) -> None:
        self._lapsed = True
        self._wake.set()

    # -- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            self._wake.clear()
            lead = self._lead
            wait = None if lead is None else PAUSE
            try:
                if lead is None:
                    self._forget("")
                elif self._session.state is State.CONNECTED:
                    wait = self._round(lead)
            except TransactionFailed as error:
                if lead is not None and lead.lost_by(error):
                    log.warning("lost the lead: another one moves what is due")
                    if self._lead is lead:
                        self._lead = None
                    self._lost()
                else:
                    log.warning("what is due is not moved, trying on: %s", error)
            except (ConnectionLost, Closed) as error:
                log.info("what is due waits for the connection: %s", error)
            except Exception:
                log.exception("moving what is due failed in a way nobody thought of, trying again")
            self._wake.wait(wait)

    def _round(self, lead: Lead) -> float:
        """Look, and move what is due; return how many seconds to wait before the next round."""
        if lead.path != self._led:
            self._forget(lead.path)
        if self._lapsed:
            self._lapsed = False
            for bucket in self._near.values():
                bucket.watched, bucket.listed = False, -1
            self._listed, self._look = -1, True
        self._open()
        if self._look or time.monotonic() >= self._scan_at:
            self._scan(lead)
        while self._heard:
            self._enlist(*self._heard.popleft())
        self._ready.extend(sorted(self._wheel.advance(self._clock())))  # a listing has no order of its own
        if self._ready:
            batch = [self._ready[place] for place in range(min(len(self._ready), READ_AT_ONCE))]
            later = set(self._mover.move(lead, batch))
            for item in batch:
                self._ready.popleft()
                if item in later:
                    self._wheel.add(self._clock() + RETRY, item)
                else:
                    self._known.discard(item)
            return 0.0
        due = self._wheel.next_due()
        scan = 0.0 if self._look else self._scan_at - time.monotonic()
        return max(0.0, scan if due is None else min(scan, due - self._clock()))

    def _forget(self, led: str) -> None:
        """Forget what was read: another leader may have moved it since."""
        for begins in [*self._near]:
            self._close(begins)
        self._known.clear()
        self._ready.clear()
        self._heard.clear()
        self._wheel.clear()
        self._listed, self._look, self._led = -1, True, led

    # -- finding what is near ------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Watch the buckets that have come near, whether they exist or not."""
        now = self._clock()
        for begins in range(int(now) // BUCKET * BUCKET, int(now + HORIZON) + 1, BUCKET):
            if begins not in self._near:
                self._near[begins] = _Bucket()
                self._look = True
            if not self._near[begins].watched and not self._session.old_server:
                self._near[begins].watched = True
                rung = partial(self._rung, begins)
                done = partial(self._watching, begins)
                self._session.post(self._session.watch_children, self._tree.bucket(begins), rung, done)

    def _close(self, begins: int) -> None:
        if self._near.pop(begins).watched:
            self._session.post(self._session.watch_children_no_more, self._tree.bucket(begins))

    def _rung(self, begins: int, kind: int, name: str) -> None:
        """Note a frame that was added to a near bucket. On the connection's thread."""
        if kind == CREATED and name and not is_record(name):
            self._heard.append((begins, name))
            self._wake.set()

    def _watching(self, begins: int, _value: Any, error: ZkmsError | None) -> None:
        """List a bucket again once it is watched. On the connection's thread."""
        bucket = self._near.get(begins)
        if isinstance(error, Unsupported):
            self._session.old_server = True
        elif error is not None:  # with another connection it is tried again; until then, looking has to do
            log.log(
                logging.INFO if isinstance(error, ConnectionLost | Closed) else logging.ERROR,
                "what is delayed cannot be watched: %s",
                error,
            )
        elif bucket is not None:
            bucket.listed, self._look = -1, True
            self._wake.set()

    def _scan(self, lead: Lead) -> None:
        began = time.monotonic()
        self._look = False
        self._find_buckets()
        asked = read_many(self._session, [*self._near], lambda b: self._session.exists_async(self._tree.bucket(b)))
        changed = [b for b, stat in asked.items() if stat is not None and stat.cversion != self._near[b].listed]
        lists = read_many(self._session, changed, lambda b: self._session.children_async(self._tree.bucket(b)))
        for begins, (names, parent) in lists.items():
            bucket = self._near[begins]
            bucket.listed = parent.cversion
            bucket.waiting = sum(self._enlist(begins, name) for name in names if not is_record(name))
        for begins, stat in asked.items():
            over = begins + BUCKET + KEEP <= self._clock()
            if over and (stat is None or (self._near[begins].waiting == 0 and self._remove(lead, begins))):
                self._close(begins)
        every = SCAN_OLD if self._session.old_server else SCAN
        self._scan_at = began + max(every, SCAN_SHARE * (time.monotonic() - began))

    def _find_buckets(self) -> None:
        """Find near and overdue buckets: of a time without a leader, or of publishers whose clocks are behind."""
        stat = self._session.exists(self._tree.delayed)
        if stat is None or stat.cversion == self._listed:
            return
        names, stat = self._session.children(self._tree.delayed)
        self._listed = stat.cversion
        for name in names:
            begins = parse_bucket(name)
            if begins is not None and begins <= self._clock() + HORIZON:
                self._near.setdefault(begins, _Bucket())

    def _enlist(self, begins: int, name: str) -> bool:
        """Note a frame, unless it is known; False if the name is none of a frame."""
        item = parse_delayed(begins, name)
        if item is None:
            self._set_aside(begins, name)
        elif item not in self._known and begins in self._near:
            self._known.add(item)
            self._wheel.add(item.due / 1000, item)
        return item is not None

    def _set_aside(self, begins: int, name: str) -> None:
        path = f"{self._tree.bucket(begins)}/{name}"
        log.error("%s is no message of ours: set aside", path)
        try:
            set_aside(self._session, self._tree, path, self._session.get(path)[0])
        except NodeMissing:
            return

    def _remove(self, lead: Lead, begins: int) -> bool:
        """Remove a bucket that is over, with the records of who got what; False if there is something in it again."""
        path = self._tree.bucket(begins)
        delete_children(self._session, path, lead.guard, only=is_record)
        try:
            self._session.multi([*lead.guard, Delete(path)])
        except TransactionFailed as error:
            if failed_with(error, NotEmpty):
                return False
            if not failed_with(error, NodeMissing, path=path):
                raise
        return True
